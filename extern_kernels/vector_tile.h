// The innermost loop of blocked products, inlined into one function per instruction set.
#pragma once

#include <cstdint>

#include "extern_kernels/vectors.h"

namespace tbx::extern_kernels {

/// Rows of sums that leave registers for the operands, where each row is two vectors.
template <int B> inline constexpr int kTileRows = B == 64 ? 14 : 6;

/// Nothing is fetched beside a product.
struct NoFetch {
  void fetch() {}
};

/// Lines of the cache that are fetched into the second level beside a product, two for each term: what the
/// next product reads, for a CPU by itself fetches ahead to the end of a page alone.
struct FetchLines {
  static constexpr int64_t kFloats = 16; ///< of a line
  const float *first, *second;
  int64_t step = kFloats; ///< 0: the same lines again and again, which costs next to nothing

  void fetch() {
    __builtin_prefetch(first, 0, 2);
    __builtin_prefetch(second, 0, 2);
    first += step, second += step;
  }
};

/// sum[r, j] += sum over l of rows[r, l] * column[l, j], for `Count` rows times `Vectors` vectors of columns;
/// rows of `column` are `Step` apart. Sums stay in registers.
template <int B, int Count, int Vectors, int Step, class Fetch = NoFetch>
[[gnu::always_inline]] inline void
add_products(const float* rows, int64_t row_step, int64_t depth, const float* column,
             typename VectorOf<B>::Lanes (&sum)[Count][Vectors], Fetch beside = {}) {
  constexpr int64_t kLanes = B / 4;
  for (int64_t l = 0; l < depth; ++l, column += Step) {
    beside.fetch();
    typename VectorOf<B>::Lanes w[Vectors];
#pragma GCC unroll 6
    for (int v = 0; v < Vectors; ++v) __builtin_memcpy(&w[v], column + v * kLanes, B);
#pragma GCC unroll 14
    for (int r = 0; r < Count; ++r) {
      const float x = rows[r * row_step + l];
#pragma GCC unroll 6
      for (int v = 0; v < Vectors; ++v) sum[r][v] += w[v] * x;
    }
  }
}

/// The same with sums that begin with `start`, or without it with 0, and are stored.
template <int B, int Count, int Vectors, int Step, class Fetch = NoFetch>
[[gnu::always_inline]] inline void multiply_tile(const float* rows, int64_t row_step, int64_t depth,
                                                 const float* column, const float* start, int64_t start_step,
                                                 float* sums, int64_t sums_step, Fetch beside = {}) {
  constexpr int64_t kLanes = B / 4;
  typename VectorOf<B>::Lanes sum[Count][Vectors] = {};
  if (start) {
#pragma GCC unroll 14
    for (int r = 0; r < Count; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) __builtin_memcpy(&sum[r][v], start + r * start_step + v * kLanes, B);
  }
  add_products<B, Count, Vectors, Step>(rows, row_step, depth, column, sum, beside);
#pragma GCC unroll 14
  for (int r = 0; r < Count; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) __builtin_memcpy(sums + r * sums_step + v * kLanes, &sum[r][v], B);
}

} // namespace tbx::extern_kernels
