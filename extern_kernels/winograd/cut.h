// How a convolution by Winograd's transforms is cut into tasks.
#pragma once

#include <cstdint>

#include "base/caches.h"

namespace tbx::extern_kernels::winograd {

/// Blocks of tiles, times parts of the results' channels. Sums are the same in every one.
struct Cut {
  int64_t tiles = 0, panels = 0; ///< in all
  int64_t block = 0, parts = 1;  ///< tiles of a task, parts of the panels
  int64_t blocks() const { return (tiles + block - 1) / block; }
};

/// For so many threads. `of_tile`: bytes of transformed data, `of_weights`: of all transformed weights.
Cut cut_tasks(int64_t tiles, int64_t panels, int64_t of_tile, int64_t of_weights, int64_t threads,
              const Caches& caches);

} // namespace tbx::extern_kernels::winograd
