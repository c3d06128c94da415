#include "base/multiply_rates.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <limits>

namespace tbx {
namespace {

constexpr int kChains = 12; ///< independent sums: enough to hide the latency of a product
constexpr int kSteps = 128;

/// Keeps the compiler from leaving a sum out, or from knowing that all are the same.
#define TBX_TOUCH(sum) asm volatile("" : "+v"(sum))

// NOLINTBEGIN(bugprone-macro-parentheses): types, names and attributes take none
/// kSteps times kChains instructions `sum = step(sum)`. The attribute is that of the instruction.
#define TBX_LOOP(name, isa, Vector, zero, one, step)                                                         \
  __attribute__((target(isa))) void name() {                                                                 \
    Vector x = one, sums[kChains];                                                                           \
    TBX_TOUCH(x);                                                                                            \
    _Pragma("GCC unroll 12") for (Vector & sum : sums) {                                                     \
      sum = zero;                                                                                            \
      TBX_TOUCH(sum);                                                                                        \
    }                                                                                                        \
    for (int i = 0; i < kSteps; ++i) _Pragma("GCC unroll 12") for (Vector & sum : sums) sum = step;          \
    _Pragma("GCC unroll 12") for (Vector & sum : sums) TBX_TOUCH(sum);                                       \
  }
TBX_LOOP(half_vectors, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_set1_ps(1), _mm256_fmadd_ps(x, x, sum))
TBX_LOOP(vectors, "avx512f", __m512, _mm512_setzero_ps(), _mm512_set1_ps(1), _mm512_fmadd_ps(x, x, sum))
TBX_LOOP(pairs, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), _mm512_set1_ps(1),
         _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)x))
// NOLINTEND(bugprone-macro-parentheses)
#undef TBX_LOOP
#undef TBX_TOUCH

double seconds_of(void (*work)()) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// How often `a` is done in the time of `b`. In turns, of which the shortest counts: the first ones wake the
/// wide units, and others on the machine only ever make one longer. Between CPUs lies a factor of two and
/// more, so that little can tip an answer.
double rate(void (*a)(), void (*b)()) {
  constexpr int kTurns = 64;
  double of_a = std::numeric_limits<double>::infinity(), of_b = of_a;
  for (int turn = 0; turn < kTurns; ++turn) {
    of_a = std::min(of_a, seconds_of(a));
    of_b = std::min(of_b, seconds_of(b));
  }
  return of_b / of_a;
}

} // namespace

bool has_fast_pairs() {
  // An instruction has twice the products.
  static const bool fast = __builtin_cpu_supports("avx512bf16") && 2 * rate(pairs, vectors) > 1.2;
  return fast;
}

bool has_wide_multipliers() {
  static const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma") &&
                           2 * rate(vectors, half_vectors) > 1.5;
  return wide;
}

} // namespace tbx

#else

namespace tbx {

bool has_fast_pairs() { return false; }
bool has_wide_multipliers() { return false; }

} // namespace tbx

#endif
