#include "extern_kernels/product/cut.h"

#include <algorithm>

#include "base/rounding.h"

namespace tbx::extern_kernels::product {
namespace {

// Smaller tasks read their operands more often than they use them.
constexpr int64_t kLeastRows = 24, kLeastColumns = 96, kMostRows = 256;

} // namespace

Cut cut_tasks(const Size& size, const Tile& tile, int64_t threads, const Caches& caches) {
  const int64_t line = tile.columns * static_cast<int64_t>(sizeof(float)); // of a panel
  const int64_t least_panels = ceil_div(kLeastColumns, tile.columns);
  Cut cut;
  // Half of the first cache for a panel, the other one for the rows that pass by.
  const int64_t most_depth = std::max<int64_t>(64, caches.l1_bytes / 2 / line);
  // One tile of rows takes each panel once, as it comes from memory.
  if (size.rows > tile.rows) cut.depths = std::max<int64_t>(1, ceil_div(size.depth, most_depth));
  // Half of the second cache for the rows; sums that wait for the next part of the depth lie behind them.
  const int64_t most_rows = std::clamp(
      caches.l2_bytes / 2 / (std::min(size.depth, most_depth) * static_cast<int64_t>(sizeof(float))),
      kLeastRows, kMostRows);
  cut.blocks = ceil_div(size.rows, most_rows);
  const int64_t sums = ceil_div(size.rows, cut.blocks) * line;
  cut.parts = ceil_div(size.panels, std::max(least_panels, caches.l2_bytes / sums));
  // Two tasks for each thread, so that one who comes late has less to do; panels are shared first, since a
  // part of them is read by one thread only.
  const int64_t wanted = threads == 1 ? 1 : 2 * threads;
  auto tasks = [&] { return size.groups * cut.blocks * cut.parts; };
  if (tasks() < wanted)
    cut.parts = std::clamp(ceil_div(wanted, size.groups * cut.blocks), cut.parts,
                           std::max(cut.parts, size.panels / least_panels));
  if (tasks() < wanted)
    cut.blocks = std::clamp(ceil_div(wanted, size.groups * cut.parts), cut.blocks,
                            std::max(cut.blocks, size.rows / kLeastRows));
  return cut;
}

} // namespace tbx::extern_kernels::product
