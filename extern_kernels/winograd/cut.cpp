#include "extern_kernels/winograd/cut.h"

#include <algorithm>

#include "base/rounding.h"
#include "extern_kernels/winograd/loops.h"

namespace tbx::extern_kernels::winograd {

Cut cut_tasks(int64_t tiles, int64_t panels, int64_t of_tile, int64_t of_weights, int64_t threads,
              const Caches& caches) {
  // Transformed data of a task: half of the second-level cache. Weights beyond a core's share of the last
  // cache are what a task waits for, and are read by every block: then few tiles are one block, and tasks
  // share the panels.
  const bool waits = of_weights > caches.share_bytes;
  const int64_t wanted = 2 * threads, least = (waits ? 4 : 1) * kRows;
  const int64_t most =
      std::clamp<int64_t>(caches.l2_bytes / 2 / of_tile, std::max(least, 2 * kRows), 8 * kRows);
  int64_t blocks = std::max(ceil_div(tiles, most), std::min(wanted, ceil_div(tiles, least)));
  if (blocks > threads) blocks = ceil_div(blocks, threads) * threads;
  Cut cut;
  cut.tiles = tiles;
  cut.panels = panels;
  cut.block = ceil_div(tiles, blocks);
  cut.parts = std::clamp(ceil_div(wanted, cut.blocks()), int64_t{1}, panels);
  return cut;
}

} // namespace tbx::extern_kernels::winograd
