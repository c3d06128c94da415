#include "extern_kernels/winograd/cut.h"

#include <algorithm>

#include "extern_kernels/winograd/loops.h"

namespace tbx::extern_kernels::winograd {

static int64_t quotient(int64_t n, int64_t step) { return (n + step - 1) / step; }

Cut cut_tasks(int64_t tiles, int64_t panels, int64_t of_tile, int64_t of_weights, int64_t threads,
              const Caches& caches) {
  // Transformed data of a task: half of the second-level cache. Weights beyond a core's share of the last
  // cache are what a task waits for, and are read by every block: then few tiles are one block, and tasks
  // share the panels.
  const bool waits = of_weights > caches.share_bytes;
  const int64_t wanted = 2 * threads, least = (waits ? 4 : 1) * kRows;
  const int64_t most =
      std::clamp<int64_t>(caches.l2_bytes / 2 / of_tile, std::max(least, 2 * kRows), 8 * kRows);
  int64_t blocks = std::max(quotient(tiles, most), std::min(wanted, quotient(tiles, least)));
  if (blocks > threads) blocks = quotient(blocks, threads) * threads;
  Cut cut;
  cut.tiles = tiles;
  cut.panels = panels;
  cut.block = quotient(tiles, blocks);
  cut.parts = std::clamp(quotient(wanted, cut.blocks()), int64_t{1}, panels);
  return cut;
}

} // namespace tbx::extern_kernels::winograd
