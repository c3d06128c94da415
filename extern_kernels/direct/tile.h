// The innermost loops of the products that no library computes well, for every instruction set.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels::direct {

/// Columns of a panel of packed weights: two 64-byte vectors.
template <class T> inline constexpr int kPanel = 128 / sizeof(T);
/// Rows of a tile at most.
inline constexpr int kRows = 8;

/// Elements are float, double, uint32_t or uint64_t; integers wrap.
template <class T> struct Tiles {
  /// sums[r * kPanel + j] = sum over t and l of rows[t * kRows + r][offset + l] * panel[(t * depth + l) *
  /// step + j], for `count` rows and the first `width` columns; whole vectors are read and written.
  void (*multiply)(const T* const* rows, int count, int64_t taps, int64_t offset, int64_t depth,
                   const T* panel, int64_t step, int width, T* sums);
};

/// For the instruction set of this CPU.
template <class T> const Tiles<T>& tiles();

/// As Tiles::multiply. Sums of bytes (T: float, R: uint32_t) are made in float32 as long as that is exact,
/// and then added as integers.
template <class T, class R>
void multiply_tile(const T* const* rows, int count, int64_t taps, int64_t offset, int64_t depth,
                   const T* panel, int64_t step, int width, R* sums);

} // namespace tbx::extern_kernels::direct
