// The innermost loops of exact products of 8-bit integers on CPUs without AVX512-VNNI. Pairs of products are
// added in 32 bits (vpmaddwd): nothing saturates, unlike with the instructions that multiply bytes there.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels::bytes {

/// Columns of a panel of packed weights.
inline constexpr int kPanel = 16;
/// Rows of a tile at most: its sums, the weights and one pair fill the registers.
inline constexpr int kRows = 6;
/// Groups of convolutions with fewer columns leave most of a panel empty.
inline constexpr int64_t kLeastGroup = 8;
/// Bytes of a panel that belong to a pair of terms: those of each column side by side.
inline constexpr int64_t kPairBytes = int64_t{2} * kPanel;

/// Where the terms of a sum lie: `pairs` pairs, one behind the other, at each of `count` places.
struct Terms {
  const int64_t* places; ///< in elements from the begin of a row
  int64_t count, pairs;
};

/// sums[r * kPanel + j] = the sum over all terms of rows[r] times column j, for `count` rows. Panels are
/// [place, pair, column, 2] of i8 or, with `unsigned_weights`, u8. Sums wrap. Needs AVX2.
void multiply(const int16_t* const* rows, int count, const Terms& terms, const int8_t* panel,
              bool unsigned_weights, int32_t* sums);

} // namespace tbx::extern_kernels::bytes
