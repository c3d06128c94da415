// Rows of numbers times panels of bytes: what convolutions and matrix products of 8-bit integers are.
#pragma once

#include <optional>

#include "extern_kernels/bytes/epilogue.h"
#include "extern_kernels/bytes/operands.h"

namespace tbx::extern_kernels::bytes {

/// Rows that a task multiplies with one panel after the other.
inline constexpr int64_t kBlockRows = int64_t{8} * kRows;

/// Rows that lie as bytes, their terms side by side, at one place each. A task makes numbers of its own: they
/// are in its cache when they are multiplied, and nobody waits for those of the others.
struct ByteRows {
  const void* data = nullptr;
  DType type = DType::undefined;
  int32_t zero = 0;
  int64_t length = 0;
};

struct Product {
  std::vector<int64_t> sizes; ///< dimensions of the rows; the first `outer` of them choose panels
  size_t outer = 0;
  Form form = Form::pairs;
  Terms terms;
  int64_t columns = 0;           ///< of each choice of panels
  std::optional<ByteRows> bytes; ///< the rows; else these are their numbers:
  const void* rows = nullptr;
  int32_t row_zero = 0;           ///< what a number of a row is more than what it stands for (zero_number)
  std::vector<int64_t> row_steps; ///< where rows begin, in elements
  const int8_t* panels = nullptr;
  std::vector<int64_t> panel_steps; ///< of the outer dimensions, in bytes
  bool unsigned_weights = false;
  /// Taken from every sum: this times the sum of what the row's numbers stand for. Of `rows` these are
  /// `row_totals`, by their place divided by `row_length`.
  int32_t weight_zero = 0;
  const int32_t* row_totals = nullptr;
  int64_t row_length = 1;
  Walk result;
  std::vector<Walk> operands; ///< of post-operations, in their order
  const std::vector<PostOp>* post_ops = nullptr;
};

inline int64_t panels_of(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

/// Computes all of it, side by side where that is worth it.
void run(const Product& product);

} // namespace tbx::extern_kernels::bytes
