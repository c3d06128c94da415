// Rows of floats as integers of 8 bits, for products with packed integers: integers times integers, where
// this machine has instructions for them. Integers are multiplied four at a time, floats one, and nothing
// has to become a float first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "extern_kernels/gemv/quantized_panels.h"

namespace tbx::extern_kernels::gemv {

/// How many digits (to the base 256) a float of a block is rounded to; the greatest of the block has all.
enum class Digits : uint8_t {
  one = 1,  ///< to 127 steps: for products that need not be more exact (accuracy_level 4 of MatMulNBits)
  three = 3 ///< to 2^-24 of the greatest, which is what adding floats rounds to: for all others
};

constexpr int kMostTileRows = 6; ///< rows that share what is made of each element read

/// Rows as integers with a step per block: element = integer * step.
class ByteRows {
public:
  /// `k` (a multiple of `block`) floats per row, `stride` floats apart, for matrices of `bits`. `memory`: as
  /// many bytes as bytes() says, which stay until the last multiply().
  ByteRows(const float* x, int64_t rows, int64_t k, int64_t stride, int64_t block, int bits, Digits digits,
           void* memory);

  /// Whether there can be such rows: instructions are there and sums over a block do not overflow.
  static bool usable(int64_t block, int bits);
  static int64_t bytes(int64_t rows, int64_t k, int64_t block, Digits digits);
  /// False where elements are not finite, or so small that a step would not be: nothing was made then.
  bool made() const { return made_; }
  int tile_rows() const { return digits_ == 1 ? kMostTileRows : kTileRows; }
  /// As QuantizedPanels::multiply with the `rows` (at most tile_rows()) rows from `first` on.
  void multiply(const QuantizedPanels& m, int64_t panel, int64_t first, int rows, float* sums) const;

private:
  int64_t k_, blocks_;
  int bits_, digits_;
  bool made_ = true;
  float* steps_;    ///< [rows, blocks]
  float* totals_;   ///< [rows, blocks], sums of the integers
  int32_t* starts_; ///< [rows, blocks, digits], what takes the middle of the matrix's range from the sums
  int8_t* bytes_;   ///< [rows, digits, k], highest digit first, within a word in the order of the kernel
};

/// Rounds `n` floats in place to the values that ByteRows of one digit holds for them.
void round_to_bytes(float* x, int64_t n, int64_t block);

} // namespace tbx::extern_kernels::gemv
