// Work whose thread does nothing else meanwhile.
#pragma once

#include <functional>

namespace tbx::runtime {

/// Calls `work`. Where it waits for a loop of its own, its thread takes tasks of `work` only. Else it would
/// take what others wait to have done: a whole run of another caller, inside of its own. One that asks for a
/// lock that its thread holds would wait for ever, and as many lie above each other on one stack as there are
/// callers.
void isolated(const std::function<void()>& work);

} // namespace tbx::runtime
