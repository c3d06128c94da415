// Questions to a library that depend on how many threads will run its kernel.
#pragma once

#include <tbb/task_arena.h>

#include "base/spare_memory.h"

namespace tbx::extern_kernels {

/// Calls `f` as in an arena of so many threads: libraries look at the arena that they are asked in, and have
/// other implementations for one thread than for two.
template <class F> auto as_with_threads(int threads, F&& f) -> decltype(f()) {
  if (tbb::this_task_arena::max_concurrency() == threads) return f();
  require_spare_memory();
  tbb::task_arena arena(threads);
  return arena.execute(f);
}

} // namespace tbx::extern_kernels
