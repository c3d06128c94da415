#include "extern_kernels/bytes/tile.h"

#include <cstring>

#include "base/error.h"
#include "extern_kernels/bytes/avx2.h"

namespace tbx::extern_kernels::bytes {

#if defined(__x86_64__)
namespace {

template <bool Unsigned> TBX_AVX2_INLINE __m256i widened(const int8_t* from) {
  const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (Unsigned) return _mm256_cvtepu8_epi16(narrow);
  return _mm256_cvtepi8_epi16(narrow);
}

/// A pair in every lane.
TBX_AVX2_INLINE __m256i pair_at(const int16_t* from) {
  int32_t pair;
  std::memcpy(&pair, from, sizeof pair);
  return _mm256_set1_epi32(pair);
}

template <bool Unsigned, int Count>
TBX_AVX2 void tile(const int16_t* const* rows, const Terms& terms, const int8_t* panel, int32_t* sums) {
  __m256i sum[Count][2];
  for (auto& row : sum) row[0] = row[1] = _mm256_setzero_si256();
  for (int64_t t = 0; t < terms.count; ++t) {
    const int16_t* row[Count];
#pragma GCC unroll 6
    for (int r = 0; r < Count; ++r) row[r] = rows[r] + terms.places[t];
    for (int64_t p = 0; p < terms.pairs; ++p, panel += kPairBytes) {
      const __m256i low = widened<Unsigned>(panel), high = widened<Unsigned>(panel + kPairBytes / 2);
#pragma GCC unroll 6
      for (int r = 0; r < Count; ++r) {
        const __m256i x = pair_at(row[r] + 2 * p);
        sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(low, x));
        sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(high, x));
      }
    }
  }
#pragma GCC unroll 6
  for (int64_t r = 0; r < Count; ++r) {
    auto* to = reinterpret_cast<__m256i*>(sums + r * kPanel);
    _mm256_storeu_si256(to, sum[r][0]);
    _mm256_storeu_si256(to + 1, sum[r][1]);
  }
}

template <bool Unsigned>
void tile_of(int count, const int16_t* const* rows, const Terms& terms, const int8_t* panel, int32_t* sums) {
  switch (count) {
  case 1: return tile<Unsigned, 1>(rows, terms, panel, sums);
  case 2: return tile<Unsigned, 2>(rows, terms, panel, sums);
  case 3: return tile<Unsigned, 3>(rows, terms, panel, sums);
  case 4: return tile<Unsigned, 4>(rows, terms, panel, sums);
  case 5: return tile<Unsigned, 5>(rows, terms, panel, sums);
  default: return tile<Unsigned, 6>(rows, terms, panel, sums);
  }
}

} // namespace

void multiply(const int16_t* const* rows, int count, const Terms& terms, const int8_t* panel,
              bool unsigned_weights, int32_t* sums) {
  if (unsigned_weights)
    tile_of<true>(count, rows, terms, panel, sums);
  else
    tile_of<false>(count, rows, terms, panel, sums);
}
#else
void multiply(const int16_t* const*, int, const Terms&, const int8_t*, bool, int32_t*) {
  TBX_INTERNAL(false);
}
#endif

} // namespace tbx::extern_kernels::bytes
