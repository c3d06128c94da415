#include "runtime/isolated.h"

#include <tbb/task_arena.h>

#include "base/spare_memory.h"

namespace tbx::runtime {

void isolated(const std::function<void()>& work) {
  thread_local bool is_known = false; // to oneTBB, which makes what a thread needs when it first hears of it
  if (!is_known) require_spare_memory();
  is_known = true;
  // A thread that oneTBB has not heard of is in no task. In the arena that it gets when it shares work it is
  // alone, and whoever enters another one is isolated there.
  if (tbb::this_task_arena::current_thread_index() == tbb::task_arena::not_initialized) return work();
  tbb::this_task_arena::isolate(work);
}

} // namespace tbx::runtime
