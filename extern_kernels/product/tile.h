// The innermost loops of the blocked product, for every instruction set.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels::product {

/// What is done in registers with a sum before it is stored.
struct Ending {
  enum Kind : uint8_t { none, clip, hard_swish /*x * clip(x / 6 + 0.5)*/ } kind = none;
  float lo = 0, hi = 0; ///< of the clip
};

/// Rows times one panel of packed weights: to[r, j] = ending(starts + sum over l of rows[r, l] * panel[l,
/// j]).
struct Strip {
  const float* rows;
  int64_t row_step, count;
  const float* panel;
  int64_t depth;
  const float* starts[2] = {}; ///< matrices with which sums begin; nullptr: nothing
  int64_t start_steps[2] = {}; ///< between their rows; 0: one row for all
  float* to;
  int64_t to_step;
  Ending ending;
  const float* next = nullptr; ///< what the second cache is to hold afterwards
  int64_t next_count = 0;      ///< floats of it
};

/// A tile of sums that registers hold: vectors of columns, which a panel of packed weights has, and as many
/// rows as leave room for the operands.
struct Tile {
  int64_t rows, columns;
  void (*multiply)(const Strip& strip);
};

/// For this CPU. All panels but the last one are as wide as `usual`, the last one may be half of one wider:
/// then fewer lanes are empty.
struct Tiles {
  Tile usual, wide;
};
const Tiles& tiles();

} // namespace tbx::extern_kernels::product
