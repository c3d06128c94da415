#include "extern_kernels/half_speed.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <limits>

#define TBX_TARGET __attribute__((target("avx512f,avx512bf16")))

namespace tbx::extern_kernels {
namespace {

constexpr int kChains = 12; ///< independent sums: enough to hide the latency of a product
constexpr int kSteps = 128;

/// Keeps the compiler from leaving sums out, or from knowing that all are the same.
TBX_TARGET inline void touch(__m512& sum) { asm volatile("" : "+v"(sum)); }

template <bool kPairs> TBX_TARGET void multiply() {
  __m512 one = _mm512_set1_ps(1), sums[kChains];
  touch(one);
#pragma GCC unroll 12
  for (__m512& sum : sums) touch(sum = _mm512_setzero_ps());
  for (int i = 0; i < kSteps; ++i)
#pragma GCC unroll 12
    for (__m512& sum : sums)
      if constexpr (kPairs)
        sum = _mm512_dpbf16_ps(sum, (__m512bh)one, (__m512bh)one);
      else
        sum = _mm512_fmadd_ps(one, one, sum);
#pragma GCC unroll 12
  for (__m512& sum : sums) touch(sum);
}

double seconds_of(void (*work)()) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// In turns, of which the shortest counts: the first ones wake the wide units, and others on the machine only
/// ever make one longer. What lies between CPUs is a factor of four, so that little can tip the answer.
bool are_pairs_faster() {
  constexpr int kTurns = 64;
  double floats = std::numeric_limits<double>::infinity(), pairs = floats;
  for (int turn = 0; turn < kTurns; ++turn) {
    floats = std::min(floats, seconds_of(multiply<false>));
    pairs = std::min(pairs, seconds_of(multiply<true>));
  }
  return 2 * floats > 1.2 * pairs; // an instruction has twice the products
}

} // namespace

bool has_fast_pairs() {
  static const bool fast = __builtin_cpu_supports("avx512bf16") && are_pairs_faster();
  return fast;
}

} // namespace tbx::extern_kernels

#else

namespace tbx::extern_kernels {

bool has_fast_pairs() { return false; }

} // namespace tbx::extern_kernels

#endif
