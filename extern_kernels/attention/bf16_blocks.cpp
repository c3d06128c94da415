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

// Forms with a mask of all lanes: GCC 12 warns of the others, in its own headers.
constexpr __mmask16 kAll = 0xffff;

/// The larger lanes, those of `b` where one is NaN.
[[gnu::always_inline]] TBX_TARGET inline __m512 larger(__m512 a, __m512 b) {
  return _mm512_maskz_max_ps(kAll, a, b);
}

/// `f` joins the lanes of a vector with those of another; the first lane has what all gave.
template <class F> [[gnu::always_inline]] TBX_TARGET inline float fold(__m512 v, F f) {
  v = f(v, _mm512_maskz_shuffle_f32x4(kAll, v, v, 0x4e));
  v = f(v, _mm512_maskz_shuffle_f32x4(kAll, v, v, 0xb1));
  v = f(v, _mm512_maskz_permute_ps(kAll, v, 0x4e));
  return _mm512_cvtss_f32(f(v, _mm512_maskz_permute_ps(kAll, v, 0xb1)));
}

[[gnu::always_inline]] TBX_TARGET inline __m512 add(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }

TBX_TARGET float prepare(float* s, int64_t n, float& scale, const float* mask, int64_t mask_stride) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // Scores that are not stored again are scaled twice instead; times 0 or less -inf would not stay what it
  // is.
  if (mask || !(scale > 0)) return blocks().prepare(s, n, scale, mask, mask_stride);
  for (int64_t j = n; j % kLanes != 0; ++j) s[j] = -kInf;
  const __m512 factor = _mm512_set1_ps(scale);
  __m512 top[4];
  for (__m512& t : top) t = _mm512_set1_ps(-kInf);
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes)
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      top[i] = larger(_mm512_mul_ps(_mm512_loadu_ps(s + j + i * kLanes), factor), top[i]);
  for (; j < n; j += kLanes) top[0] = larger(_mm512_mul_ps(_mm512_loadu_ps(s + j), factor), top[0]);
  return fold(larger(larger(top[0], top[1]), larger(top[2], top[3])), larger);
}

/// Shares are rounded where they are stored; their sum is that of the numbers before.
TBX_TARGET void softmax(const float* s, int64_t n, float scale, float here, RowState& state, float* out,
                        int64_t width, void* shares) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const __m512 factor = _mm512_set1_ps(scale), least = _mm512_set1_ps(kLeastPower);
  const float greatest = here > state.greatest ? here : state.greatest;
  // Nothing but -inf so far: any finite value to subtract gives 0; NaN stays.
  const __m512 shift = _mm512_set1_ps(greatest == -kInf ? 0 : greatest);
  __m512 sum = _mm512_setzero_ps(), e;
  auto* to = static_cast<uint16_t*>(shares);
  for (int64_t j = 0; j < n; j += kLanes) {
    exp_of_negative_fused<Ints>(_mm512_fmsub_ps(_mm512_loadu_ps(s + j), factor, shift), least, e);
    sum = _mm512_add_ps(sum, e);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), (__m256i)_mm512_cvtneps_pbh(e));
  }
  if (greatest != state.greatest) {
    exp_of_negative_fused<Ints>(_mm512_set1_ps(state.greatest - greatest), least, e);
    const float f = _mm512_cvtss_f32(e);
    state.sum *= f;
    int64_t j = 0;
    for (; j + kLanes <= width; j += kLanes)
      _mm512_storeu_ps(out + j, _mm512_mul_ps(_mm512_loadu_ps(out + j), e));
    for (; j < width; ++j) out[j] *= f;
    state.greatest = greatest;
  }
  state.sum += fold(sum, add);
}

/// Lanes before the end of `n` numbers from `j` on.
[[gnu::always_inline]] inline __mmask16 before(int64_t n, int64_t j) {
  return n - j >= kLanes ? kAll : static_cast<__mmask16>((1 << (n - j)) - 1);
}

TBX_TARGET void divide_to_bf16(const float* from, int64_t n, float by, uint16_t* to) {
  const __m512 all = _mm512_set1_ps(by);
  for (int64_t j = 0; j < n; j += kLanes) {
    const __mmask16 here = before(n, j);
    const __m512 x = _mm512_maskz_div_ps(here, _mm512_maskz_loadu_ps(here, from + j), all);
    _mm256_mask_storeu_epi16(to + j, here, (__m256i)_mm512_cvtneps_pbh(x));
  }
}

TBX_TARGET void pair(const uint16_t* low, const uint16_t* high, int64_t n, float* to) {
  for (int64_t j = 0; j < n; j += kLanes) {
    const __mmask16 here = before(n, j);
    const __m512i even = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(here, low + j)),
                  odd = _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(here, high + j));
    _mm512_mask_storeu_epi32(to + j, here, _mm512_or_si512(even, _mm512_maskz_slli_epi32(kAll, odd, 16)));
  }
}

Blocks with_bf16() {
  Blocks b = blocks();
  b.name = "avx512_bf16";
  b.per_word = 2;
  b.multiply = multiply;
  b.prepare = prepare;
  b.softmax = softmax;
  b.divide_to_bf16 = divide_to_bf16;
  b.pair = pair;
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
