#include "extern_kernels/recurrent/pairs.h"

#include "base/error.h"
#include "base/isa.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TBX_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,fma")))

namespace tbx::extern_kernels::recurrent {
namespace {

constexpr int64_t kLanes = 16;

/// A single row keeps two sums for each vector, so that additions do not wait for each other.
template <int V, int M>
[[gnu::always_inline]] TBX_TARGET inline void tile(const float* panel, const float* x, int64_t stride,
                                                   int64_t depth, float* sums) {
  constexpr int kSets = M == 1 ? 2 : 1;
  __m512 total[kSets][M][V];
#pragma GCC unroll 2
  for (int s = 0; s < kSets; ++s)
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) total[s][m][v] = _mm512_setzero_ps();
  auto add = [&](int s, int64_t i) TBX_TARGET __attribute__((always_inline)) {
    __m512 row[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) row[v] = _mm512_loadu_ps(panel + (i * V + v) * kLanes);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const __m512 pair = _mm512_set1_ps(x[m * stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        total[s][m][v] = _mm512_dpbf16_ps(total[s][m][v], (__m512bh)row[v], (__m512bh)pair);
    }
  };
  int64_t i = 0;
  for (; i + kSets <= depth; i += kSets)
#pragma GCC unroll 2
    for (int s = 0; s < kSets; ++s) add(s, i + s);
  if (kSets == 2 && i < depth) add(0, i);
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      __m512 sum = total[0][m][v];
      if (kSets == 2) sum = _mm512_add_ps(sum, total[kSets - 1][m][v]);
      _mm512_storeu_ps(sums + (m * V + v) * kLanes, sum);
    }
}

template <int V>
TBX_TARGET void multiply(const float* panel, const float* x, int64_t stride, int64_t rows, int64_t depth,
                         float* sums) {
  for (; rows >= 4; rows -= 4, x += 4 * stride, sums += 4 * kLanes * V)
    tile<V, 4>(panel, x, stride, depth, sums);
  if (rows == 3)
    tile<V, 3>(panel, x, stride, depth, sums);
  else if (rows == 2)
    tile<V, 2>(panel, x, stride, depth, sums);
  else if (rows == 1)
    tile<V, 1>(panel, x, stride, depth, sums);
}

TBX_TARGET void round_vectors(const float* from, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += 2 * kLanes) {
    auto mask = [&](int64_t left) {
      return static_cast<__mmask16>(left >= kLanes ? 0xffff : left <= 0 ? 0 : (1 << left) - 1);
    };
    const __mmask16 low = mask(n - i), high = mask(n - i - kLanes);
    const __m512bh both = _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, from + i + kLanes),
                                              _mm512_maskz_loadu_ps(low, from + i));
    _mm512_mask_storeu_ps(to + i / 2, mask((n - i + 1) / 2), (__m512)both);
  }
}

} // namespace

bool multiplies_pairs() {
  static const bool can = host_isa() == Isa::avx512 && __builtin_cpu_supports("avx512bf16");
  return can;
}

void round_to_pairs(const float* from, int64_t n, float* to) { round_vectors(from, n, to); }

void multiply_pairs(const float* panel, int vectors, const float* states, int64_t stride, int64_t rows,
                    int64_t depth, float* sums) {
  (vectors == 3 ? multiply<3> : multiply<4>)(panel, states, stride, rows, depth, sums);
}

} // namespace tbx::extern_kernels::recurrent

#else

namespace tbx::extern_kernels::recurrent {

bool multiplies_pairs() { return false; }
void round_to_pairs(const float*, int64_t, float*) { TBX_INTERNAL(!"a CPU that multiplies pairs"); }
void multiply_pairs(const float*, int, const float*, int64_t, int64_t, int64_t, float*) {
  TBX_INTERNAL(!"a CPU that multiplies pairs");
}

} // namespace tbx::extern_kernels::recurrent

#endif
