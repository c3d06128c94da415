#include "extern_kernels/bytes/operands.h"

#include <algorithm>
#include <array>
#include <cstring>

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

/// Eight pixels of sixteen channels.
constexpr int64_t kPixels = 8, kChannels = 16;

TBX_AVX2_INLINE __m128i eight_pixels(const void* from, int64_t count, const void* end) {
  // Pixels beyond the last one are read where there is memory, and not stored.
  if (static_cast<const char*>(end) - static_cast<const char*>(from) >= kPixels)
    return _mm_loadl_epi64(static_cast<const __m128i*>(from));
  int64_t bytes = 0;
  std::memcpy(&bytes, from, static_cast<size_t>(count));
  return _mm_cvtsi64_si128(bytes);
}

template <class S>
TBX_AVX2 void turn_block(const S* from, int64_t channel_step, int64_t count, int64_t channels, int32_t zero,
                         const void* end, int16_t* to) {
  // Neighbours are joined: channels of a pixel by twos, fours, eights.
  __m128i twos[kChannels / 2], fours[kChannels / 2], eights[kChannels / 2];
#pragma GCC unroll 8
  for (int64_t i = 0; i < kChannels / 2; ++i)
    twos[i] = _mm_unpacklo_epi8(eight_pixels(from + 2 * i * channel_step, count, end),
                                eight_pixels(from + (2 * i + 1) * channel_step, count, end));
#pragma GCC unroll 4
  for (int64_t i = 0; i < kChannels / 4; ++i) { // pixels 0 to 3, 4 to 7
    fours[2 * i] = _mm_unpacklo_epi16(twos[2 * i], twos[2 * i + 1]);
    fours[2 * i + 1] = _mm_unpackhi_epi16(twos[2 * i], twos[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int64_t i = 0; i < kChannels / 8; ++i)
#pragma GCC unroll 2
    for (int64_t half = 0; half < 2; ++half) { // two pixels each
      eights[4 * i + 2 * half] = _mm_unpacklo_epi32(fours[4 * i + half], fours[4 * i + 2 + half]);
      eights[4 * i + 2 * half + 1] = _mm_unpackhi_epi32(fours[4 * i + half], fours[4 * i + 2 + half]);
    }
  const __m256i zeros = _mm256_set1_epi16(static_cast<int16_t>(zero));
#pragma GCC unroll 8
  for (int64_t pixel = 0; pixel < kPixels; ++pixel) {
    if (pixel >= count) return;
    const __m128i low = eights[pixel / 2], high = eights[4 + pixel / 2];
    const __m128i all = pixel % 2 == 0 ? _mm_unpacklo_epi64(low, high) : _mm_unpackhi_epi64(low, high);
    const __m256i wide = std::is_signed_v<S> ? _mm256_cvtepi8_epi16(all) : _mm256_cvtepu8_epi16(all);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + pixel * channels), _mm256_sub_epi16(wide, zeros));
  }
}

template <class S>
int64_t turn(const S* from, int64_t channel_step, int64_t count, int64_t channels, int32_t zero,
             const void* end, int16_t* to) {
  const int64_t whole = channels / kChannels * kChannels;
  for (int64_t c = 0; c < whole; c += kChannels)
    for (int64_t j = 0; j < count; j += kPixels)
      turn_block(from + c * channel_step + j, channel_step, std::min(kPixels, count - j), channels, zero, end,
                 to + j * channels + c);
  return whole;
}
#else
template <class S> int64_t widen_vectors(const S*, int64_t, int32_t, int16_t*, int32_t&) { return 0; }
template <class S> int64_t turn(const S*, int64_t, int64_t, int64_t, int32_t, const void*, int16_t*) {
  return 0;
}
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

int64_t turn(const void* from, DType type, int64_t channel_step, int64_t count, int64_t channels,
             int32_t zero, const void* end, int16_t* to) {
  return type == DType::u8
             ? turn(static_cast<const uint8_t*>(from), channel_step, count, channels, zero, end, to)
             : turn(static_cast<const int8_t*>(from), channel_step, count, channels, zero, end, to);
}

} // namespace tbx::extern_kernels::bytes
