// The innermost loop of the blocked product, for every instruction set.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels::product {

/// A tile of sums that registers hold: two vectors of columns, which a panel of packed weights has, and as
/// many rows as leave room for the operands.
struct Tile {
  int64_t rows, columns;
  /// sums[r, j] = start[r, j] + sum over l of rows[r, l] * panel[l, j] for `count` rows, which are a step
  /// apart. Without `start` sums begin with 0.
  void (*multiply)(const float* rows, int64_t row_step, int64_t count, int64_t depth, const float* panel,
                   const float* start, int64_t start_step, float* sums, int64_t sums_step);
  int64_t size() const { return rows * columns; }
};

/// For this CPU.
const Tile& tile();

} // namespace tbx::extern_kernels::product
