// Blocked attention with products of bfloat16: pairs of neighbours along the sum are multiplied and added in
// f32 by one instruction.
#include <algorithm>
#include <limits>

#include "extern_kernels/attention/blocks.h"
#include "extern_kernels/vector_exp.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TBX_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,fma")))

namespace tbx::extern_kernels::attention {
namespace {

constexpr int64_t kLanes = 16, kPanel = 64; ///< those of the f32 blocks, which pack the panels
typedef int32_t Ints __attribute__((vector_size(64), may_alias));

template <int V, int M>
[[gnu::always_inline]] TBX_TARGET inline void tile(const float* a, int64_t lda, int64_t k, const float* b,
                                                   float* c, int64_t ldc, bool add) {
  __m512 sum[M][V];
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v)
      sum[m][v] = add ? _mm512_loadu_ps(c + m * ldc + v * kLanes) : _mm512_setzero_ps();
  for (int64_t l = 0; l < k; ++l) {
    __m512 row[V];
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) row[v] = _mm512_loadu_ps(b + (l * V + v) * kLanes);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) {
      const __m512 pair = _mm512_set1_ps(a[m * lda + l]);
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[m][v] = _mm512_dpbf16_ps(sum[m][v], (__m512bh)pair, (__m512bh)row[v]);
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(c + m * ldc + v * kLanes, sum[m][v]);
}

template <int V, int M>
[[gnu::always_inline]] TBX_TARGET inline void rows_of(const float* a, int64_t lda, int64_t m, int64_t k,
                                                      const float* b, float* c, int64_t ldc, bool add) {
  for (; m >= M; m -= M, a += M * lda, c += M * ldc) tile<V, M>(a, lda, k, b, c, ldc, add);
  for (; m >= 2; m -= 2, a += 2 * lda, c += 2 * ldc) tile<V, 2>(a, lda, k, b, c, ldc, add);
  if (m > 0) tile<V, 1>(a, lda, k, b, c, ldc, add);
}

TBX_TARGET void multiply(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t b_rows,
                         int64_t first, int64_t n, float* c, int64_t ldc, bool add) {
  for (int64_t j = 0; j < n; j += kPanel) {
    const int64_t vectors = (std::min<int64_t>(kPanel, n - j) + kLanes - 1) / kLanes,
                  width = vectors * kLanes;
    const float* panel = b + first * width;
    if (vectors == 4)
      rows_of<4, 6>(a, lda, m, k, panel, c + j, ldc, add);
    else if (vectors == 3)
      rows_of<3, 8>(a, lda, m, k, panel, c + j, ldc, add);
    else if (vectors == 2)
      rows_of<2, 12>(a, lda, m, k, panel, c + j, ldc, add);
    else
      rows_of<1, 12>(a, lda, m, k, panel, c + j, ldc, add);
    b += b_rows * width;
  }
}

TBX_TARGET float greatest_of(__m512 v) {
  alignas(64) float all[kLanes];
  _mm512_store_ps(all, v);
  return *std::max_element(all, all + kLanes);
}

TBX_TARGET float total(__m512 v) {
  alignas(64) float all[kLanes];
  _mm512_store_ps(all, v);
  for (int s = kLanes / 2; s > 0; s /= 2)
    for (int i = 0; i < s; ++i) all[i] += all[i + s];
  return all[0];
}

/// The larger lanes, those of `b` where one is NaN.
[[gnu::always_inline]] TBX_TARGET inline __m512 larger(__m512 a, __m512 b) {
  return _mm512_maskz_max_ps(static_cast<__mmask16>(-1), a, b);
}

/// e^x for x <= 0: 0 below -87, NaN for NaN.
[[gnu::always_inline]] TBX_TARGET inline __m512 exp_of(__m512 x) {
  const __m512 least = _mm512_set1_ps(-87);
  const __mmask16 counts = _mm512_cmp_ps_mask(x, least, _CMP_NLT_UQ); // also NaN
  __m512 e;
  exp_of_negative<Ints>(larger(least, x), e);
  return _mm512_maskz_mov_ps(counts, e);
}

/// Shares are rounded where they are stored; their sum is that of the numbers before.
TBX_TARGET void softmax(float* s, int64_t n, float scale, const float* mask, int64_t mask_stride,
                        RowState& state, float* out, int64_t width, void* shares) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (mask || !(scale > 0)) { // else -inf would not stay what it is
    for (int64_t j = 0; j < n; ++j) s[j] = s[j] * scale + (mask ? mask[j * mask_stride] : 0);
    scale = 1;
  }
  for (int64_t j = n; j % kLanes != 0; ++j) s[j] = -kInf;
  const __m512 factor = _mm512_set1_ps(scale);
  __m512 top = _mm512_set1_ps(-kInf);
  for (int64_t j = 0; j < n; j += kLanes) top = larger(_mm512_mul_ps(_mm512_loadu_ps(s + j), factor), top);
  const float here = greatest_of(top), greatest = here > state.greatest ? here : state.greatest;
  // Nothing but -inf so far: any finite value to subtract gives 0; NaN stays.
  const __m512 shift = _mm512_set1_ps(greatest == -kInf ? 0 : greatest);
  __m512 sum = _mm512_setzero_ps();
  auto* to = static_cast<uint16_t*>(shares);
  for (int64_t j = 0; j < n; j += kLanes) {
    const __m512 e = exp_of(_mm512_fmsub_ps(_mm512_loadu_ps(s + j), factor, shift));
    sum = _mm512_add_ps(sum, e);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), (__m256i)_mm512_cvtneps_pbh(e));
  }
  if (greatest != state.greatest) {
    const float f = _mm512_cvtss_f32(exp_of(_mm512_set1_ps(state.greatest - greatest)));
    state.sum *= f;
    for (int64_t j = 0; j < width; ++j) out[j] *= f;
    state.greatest = greatest;
  }
  state.sum += total(sum);
}

Blocks with_bf16() {
  Blocks b = blocks();
  b.per_word = 2;
  b.multiply = multiply;
  b.softmax = softmax;
  return b;
}

} // namespace

const Blocks* bf16_blocks() {
  static const Blocks all = with_bf16();
  static const bool here = all.lanes == kLanes && all.panel == kPanel && __builtin_cpu_supports("avx512bf16");
  return here ? &all : nullptr;
}

} // namespace tbx::extern_kernels::attention

#else

namespace tbx::extern_kernels::attention {
const Blocks* bf16_blocks() { return nullptr; }
} // namespace tbx::extern_kernels::attention

#endif
