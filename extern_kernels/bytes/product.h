// Rows of 16-bit numbers times panels of bytes: what convolutions and matrix products of 8-bit integers are.
#pragma once

#include "extern_kernels/bytes/epilogue.h"

namespace tbx::extern_kernels::bytes {

/// Rows that a task multiplies with one panel after the other.
inline constexpr int64_t kBlockRows = int64_t{8} * kRows;

struct Product {
  std::vector<int64_t> sizes; ///< dimensions of the rows; the first `outer` of them choose panels
  size_t outer = 0;
  Terms terms;
  int64_t columns = 0; ///< of each choice of panels
  const int16_t* rows = nullptr;
  std::vector<int64_t> row_steps; ///< where rows begin, in elements
  const int8_t* panels = nullptr;
  std::vector<int64_t> panel_steps; ///< of the outer dimensions, in bytes
  bool unsigned_weights = false;
  /// Taken from every sum: this times the number `row_totals` has for the row, by its place in `rows` divided
  /// by `row_length`.
  int32_t weight_zero = 0;
  const int32_t* row_totals = nullptr;
  int64_t row_length = 1;
  Walk result;
  std::vector<Walk> operands; ///< of post-operations, in their order
  const std::vector<PostOp>* post_ops = nullptr;
};

/// Of one panel.
inline int64_t panel_bytes(const Terms& terms) { return terms.count * terms.pairs * kPairBytes; }
inline int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

/// Computes all of it, side by side where that is worth it.
void run(const Product& product);

} // namespace tbx::extern_kernels::bytes
