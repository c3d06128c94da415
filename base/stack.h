// Stack: work that recurses as deep as a model nests, on threads of any stack.
#pragma once

#include <functional>

namespace tbx {

/// Runs `work` here where enough of this thread's stack is left for what a model within its limits needs,
/// else on a thread made for it, which has more. Throws what `work` throws; Error (backend) when no thread
/// can be started.
void with_stack(const std::function<void()>& work);

} // namespace tbx
