#include "runtime/isolated.h"

#include <tbb/task_arena.h>

namespace tbx::runtime {

void isolated(const std::function<void()>& work) { tbb::this_task_arena::isolate(work); }

} // namespace tbx::runtime
