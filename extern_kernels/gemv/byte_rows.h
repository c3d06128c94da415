// Activations rounded to 8 bits, for products with packed integers that need not be more exact
// (accuracy_level 4 of MatMulNBits): integers times integers, where this machine has instructions for them.
#pragma once

#include <cstdint>
#include <vector>

#include "extern_kernels/gemv/quantized_panels.h"

namespace tbx::extern_kernels::gemv {

/// Rows of floats as integers from -127 to 127 with a step per block: element = integer * step.
class ByteRows {
public:
  /// `k` (a multiple of `block`) floats per row, `stride` floats apart, for matrices of `bits`.
  ByteRows(const float* x, int64_t rows, int64_t k, int64_t stride, int64_t block, int bits);

  /// Whether `multiply` can be used: instructions are there and sums over a block do not overflow.
  static bool usable(int64_t block, int bits);
  /// As QuantizedPanels::multiply with the `rows` (at most kTileRows) rows from `first` on.
  void multiply(const QuantizedPanels& m, int64_t panel, int64_t first, int rows, float* sums) const;

private:
  int64_t k_, block_, blocks_;
  int bits_;
  std::vector<int8_t> bytes_; ///< [rows, k], within the elements of a word in the order of the kernel
  std::vector<float> steps_;  ///< [rows, blocks]
  std::vector<int32_t> sums_; ///< [rows, blocks], of the integers
};

/// Rounds `n` floats in place to the values that ByteRows holds for them.
void round_to_bytes(float* x, int64_t n, int64_t block);

} // namespace tbx::extern_kernels::gemv
