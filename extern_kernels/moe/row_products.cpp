#include "extern_kernels/moe/row_products.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/float_formats.h"
#include "base/isa.h"
#include "extern_kernels/vectors.h"

namespace tbx::extern_kernels {
namespace {

constexpr int kColumns = 4, kTileRows = 4;

template <class V> [[gnu::always_inline]] inline void load(V& v, const float* from) {
  std::memcpy(&v, from, sizeof v);
}

/// One body for all instruction sets, of vectors of `B` bytes, as in gemv/panels.cpp: `M` rows times `C`
/// columns.
template <int B, int M, int C>
[[gnu::always_inline]] inline void tile(const float* w, int64_t k, const float* const* x, float* sums) {
  using Lanes = typename VectorOf<B>::Lanes;
  constexpr int kLanes = B / 4;
  Lanes sum[M][C] = {};
  int64_t l = 0;
  for (; l + kLanes <= k; l += kLanes) {
    Lanes column[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) load(column[c], w + c * k + l);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      Lanes row;
      load(row, x[m] + l);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[m][c] += column[c] * row;
    }
  }
  for (int m = 0; m < M; ++m)
    for (int c = 0; c < C; ++c) {
      float total = 0;
      for (int i = 0; i < kLanes; ++i) total += sum[m][c][i];
      for (int64_t i = l; i < k; ++i) total += w[c * k + i] * x[m][i];
      sums[m * kColumns + c] = total;
    }
}

/// `count` columns, at most kColumns.
template <int B, int M>
[[gnu::always_inline]] inline void columns(const float* w, int64_t k, int count, const float* const* x,
                                           float* sums) {
  constexpr int kAtOnce = M > 2 ? 2 : kColumns; // what leaves the sums in registers
  int c = 0;
  for (; c + kAtOnce <= count; c += kAtOnce) tile<B, M, kAtOnce>(w + c * k, k, x, sums + c);
  for (; c < count; ++c) tile<B, M, 1>(w + c * k, k, x, sums + c);
}

template <int B>
[[gnu::always_inline]] inline void body(const float* w, int64_t k, int count, const float* const* x, int rows,
                                        float* sums) {
  static_assert(kTileRows == 4);
  switch (rows) {
  case 1: return columns<B, 1>(w, k, count, x, sums);
  case 2: return columns<B, 2>(w, k, count, x, sums);
  case 3: return columns<B, 3>(w, k, count, x, sums);
  default: return columns<B, 4>(w, k, count, x, sums);
  }
}

void plain(const float* w, int64_t k, int count, const float* const* x, int rows, float* sums) {
  body<16>(w, k, count, x, rows, sums);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void avx2(const float* w, int64_t k, int count, const float* const* x,
                                              int rows, float* sums) {
  body<32>(w, k, count, x, rows, sums);
}
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
avx512(const float* w, int64_t k, int count, const float* const* x, int rows, float* sums) {
  body<64>(w, k, count, x, rows, sums);
}
#endif

auto best() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return avx512;
  if (host_isa() >= Isa::avx2) return avx2;
#endif
  return plain;
}

} // namespace

void multiply_rows(DType type, const void* matrix, int64_t k, int64_t begin, int64_t end, const float* bias,
                   std::span<const float* const> x, std::span<float* const> y) {
  static const auto multiply = best();
  std::vector<float> wide(is_half(type) ? static_cast<size_t>(kColumns * k) : 0);
  for (int64_t j = begin; j < end; j += kColumns) {
    const int count = static_cast<int>(std::min<int64_t>(kColumns, end - j));
    const float* w;
    if (is_half(type)) {
      decode_halves(type, static_cast<const uint16_t*>(matrix) + j * k, count * k, wide.data());
      w = wide.data();
    } else {
      w = static_cast<const float*>(matrix) + j * k;
    }
    for (size_t i = 0; i < x.size(); i += kTileRows) {
      float sums[kTileRows * kColumns];
      const int here = static_cast<int>(std::min<size_t>(kTileRows, x.size() - i));
      multiply(w, k, count, x.data() + i, here, sums);
      for (int m = 0; m < here; ++m)
        for (int c = 0; c < count; ++c) y[i + m][j + c] = sums[m * kColumns + c] + (bias ? bias[j + c] : 0);
    }
  }
}

} // namespace tbx::extern_kernels
