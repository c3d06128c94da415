#include "extern_kernels/bytes/operands.h"

#include <algorithm>
#include <array>

#include "extern_kernels/bytes/avx2.h"

namespace tbx::extern_kernels::bytes {
namespace {

template <class S> int32_t widen_each(const S* from, int64_t step, int64_t count, int32_t zero, int16_t* to) {
  int32_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<int16_t>(from[i * step] - zero);
    total += to[i];
  }
  return total;
}

#if defined(__x86_64__)
/// Whole vectors; returns how many elements that were.
template <class S>
TBX_AVX2 int64_t widen_vectors(const S* from, int64_t count, int32_t zero, int16_t* to, int32_t& total) {
  const __m256i zeros = _mm256_set1_epi16(static_cast<int16_t>(zero)), ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m256i wide = std::is_signed_v<S> ? _mm256_cvtepi8_epi16(narrow) : _mm256_cvtepu8_epi16(narrow);
    const __m256i x = _mm256_sub_epi16(wide, zeros);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), x);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, ones));
  }
  alignas(32) int32_t lanes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), sum);
  for (int32_t lane : lanes) total += lane;
  return i;
}
#else
template <class S> int64_t widen_vectors(const S*, int64_t, int32_t, int16_t*, int32_t&) { return 0; }
#endif

template <class S> int32_t widen(const S* from, int64_t step, int64_t count, int32_t zero, int16_t* to) {
  int32_t total = 0;
  const int64_t done = step == 1 ? widen_vectors(from, count, zero, to, total) : 0;
  return total + widen_each(from + done * step, step, count - done, zero, to + done);
}

} // namespace

int32_t widen(const void* from, DType type, int64_t step, int64_t count, int32_t zero, int16_t* to) {
  return type == DType::u8 ? widen(static_cast<const uint8_t*>(from), step, count, zero, to)
                           : widen(static_cast<const int8_t*>(from), step, count, zero, to);
}

void pack_panel(int64_t panel, int64_t columns, const int8_t* from, const WeightSteps& steps, int8_t* to) {
  const int64_t first = panel * kPanel, width = std::min<int64_t>(kPanel, columns - first);
  const auto depth = static_cast<int64_t>(steps.terms.size());
  const int64_t* terms = steps.terms.data();
  for (int64_t place : steps.places) {
    const int8_t* begin = from + first * steps.column + place;
    for (int64_t l = 0; l < depth; l += 2, to += kPairBytes) {
      const bool is_pair = l + 1 < depth;
      const int8_t *one = begin + terms[l], *other = begin + terms[is_pair ? l + 1 : l];
      std::array<int8_t, kPairBytes> pairs{}; // no memory that `terms` could lie in
      for (int64_t j = 0; j < width; ++j, one += steps.column, other += steps.column) {
        pairs[2 * j] = *one;
        pairs[2 * j + 1] = is_pair ? *other : int8_t{0};
      }
      std::copy(pairs.begin(), pairs.end(), to);
    }
  }
}

} // namespace tbx::extern_kernels::bytes
