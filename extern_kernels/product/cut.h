// How a blocked product is cut into tasks.
#pragma once

#include <cstdint>

#include "base/caches.h"
#include "extern_kernels/product/tile.h"

namespace tbx::extern_kernels::product {

struct Size {
  int64_t groups = 1; ///< products with matrices of their own
  int64_t rows = 0;   ///< of each
  int64_t panels = 0, depth = 0;
};

/// Blocks of rows times parts of the panels, of each group. The order of a sum is the same in every one.
struct Cut {
  int64_t depths = 1;            ///< parts of the depth: of a panel, the first cache holds one
  int64_t blocks = 1, parts = 1; ///< of the rows and the panels of a group
};

/// For so many threads.
Cut cut_tasks(const Size& size, const Tile& tile, int64_t threads, const Caches& caches);

} // namespace tbx::extern_kernels::product
