#include "extern_kernels/bytes/operands.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "extern_kernels/bytes/avx2.h"

namespace tbx::extern_kernels::bytes {
namespace {

/// Bytes from 0 on are those of i8 with the highest bit turned.
constexpr int kTurned = 0x80;

/// A byte as a number of a row; `zero` as it is given.
template <class N, class S> N number_of(S byte, int32_t zero) {
  if constexpr (kFormOf<N> == Form::pairs) return static_cast<N>(byte - zero);
  return static_cast<N>(std::is_signed_v<S> ? byte ^ kTurned : byte);
}

template <class N, class S>
int32_t numbers_each(const S* from, int64_t step, int64_t count, int32_t zero, N* to) {
  int32_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    to[i] = number_of<N>(from[i * step], zero);
    total += to[i];
  }
  return total;
}

#if defined(__x86_64__)
TBX_AVX2_INLINE int32_t sum_of(__m256i lanes) {
  alignas(32) int32_t values[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(values), lanes);
  int32_t sum = 0;
  for (int32_t value : values) sum += value;
  return sum;
}

/// Sixteen bytes as numbers of 16 bits.
template <class S> TBX_AVX2_INLINE __m256i widened(__m128i bytes, __m256i zeros) {
  return _mm256_sub_epi16(std::is_signed_v<S> ? _mm256_cvtepi8_epi16(bytes) : _mm256_cvtepu8_epi16(bytes),
                          zeros);
}

/// Whole vectors; returns how many elements that were.
template <class S>
TBX_AVX2 int64_t whole_vectors(const S* from, int64_t count, int32_t zero, int16_t* to, int32_t& total) {
  const __m256i zeros = _mm256_set1_epi16(static_cast<int16_t>(zero)), ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i x = widened<S>(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)), zeros);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), x);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, ones));
  }
  total += sum_of(sum);
  return i;
}

template <class S>
TBX_AVX2 int64_t whole_vectors(const S* from, int64_t count, int32_t, uint8_t* to, int32_t& total) {
  const __m256i turned = _mm256_set1_epi8(std::is_signed_v<S> ? static_cast<char>(kTurned) : 0);
  __m256i sum = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i x =
        _mm256_xor_si256(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)), turned);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), x);
    sum = _mm256_add_epi32(sum, _mm256_sad_epu8(x, _mm256_setzero_si256())); // sums of eight in 64 bits
  }
  total += sum_of(sum);
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

template <class S> TBX_AVX2_INLINE void store(__m128i bytes, int32_t zero, int16_t* to) {
  const __m256i zeros = _mm256_set1_epi16(static_cast<int16_t>(zero));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), widened<S>(bytes, zeros));
}
template <class S> TBX_AVX2_INLINE void store(__m128i bytes, int32_t, uint8_t* to) {
  const __m128i turned = _mm_set1_epi8(std::is_signed_v<S> ? static_cast<char>(kTurned) : 0);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_xor_si128(bytes, turned));
}

template <class N, class S>
TBX_AVX2 void turn_block(const S* from, int64_t channel_step, int64_t count, int64_t channels, int32_t zero,
                         const void* end, N* to) {
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
#pragma GCC unroll 8
  for (int64_t pixel = 0; pixel < kPixels; ++pixel) {
    if (pixel >= count) return;
    const __m128i low = eights[pixel / 2], high = eights[4 + pixel / 2];
    store<S>(pixel % 2 == 0 ? _mm_unpacklo_epi64(low, high) : _mm_unpackhi_epi64(low, high), zero,
             to + pixel * channels);
  }
}

template <class N, class S>
int64_t turn_all(const S* from, int64_t channel_step, int64_t count, int64_t channels, int32_t zero,
                 const void* end, N* to) {
  const int64_t whole = channels / kChannels * kChannels;
  for (int64_t c = 0; c < whole; c += kChannels)
    for (int64_t j = 0; j < count; j += kPixels)
      turn_block(from + c * channel_step + j, channel_step, std::min(kPixels, count - j), channels, zero, end,
                 to + j * channels + c);
  return whole;
}
#else
template <class N, class S> int64_t whole_vectors(const S*, int64_t, int32_t, N*, int32_t&) { return 0; }
template <class N, class S> int64_t turn_all(const S*, int64_t, int64_t, int64_t, int32_t, const void*, N*) {
  return 0;
}
#endif

template <class N, class S>
int32_t numbers_of(const S* from, int64_t step, int64_t count, int32_t zero, N* to) {
  int32_t total = 0;
  const int64_t done = step == 1 ? whole_vectors(from, count, zero, to, total) : 0;
  return total + numbers_each(from + done * step, step, count - done, zero, to + done);
}

} // namespace

template <class N>
int32_t to_numbers(const void* from, DType type, int64_t step, int64_t count, int32_t zero, N* to) {
  const int32_t total = type == DType::u8
                            ? numbers_of(static_cast<const uint8_t*>(from), step, count, zero, to)
                            : numbers_of(static_cast<const int8_t*>(from), step, count, zero, to);
  const auto zeros = static_cast<uint32_t>(count) * static_cast<uint32_t>(zero_number<N>(type, zero));
  return static_cast<int32_t>(static_cast<uint32_t>(total) - zeros);
}
template int32_t to_numbers(const void*, DType, int64_t, int64_t, int32_t, int16_t*);
template int32_t to_numbers(const void*, DType, int64_t, int64_t, int32_t, uint8_t*);

int64_t panel_head(Form form) {
  return form == Form::pairs ? 0 : kPanel * static_cast<int64_t>(sizeof(int32_t));
}

int64_t panel_bytes(Form form, const Terms& terms) {
  const int64_t bounds = form == Form::bounded_quads ? 2 * Bounded::bounds_of(terms) : 0;
  return panel_head(form) + bounds + terms.all() * kPanel * group_of(form);
}

namespace {

/// [place, group, column, term] as a panel of bounded quads (Bounded).
void bound_groups(const std::vector<int8_t>& blocks, const Terms& terms, int8_t* to) {
  constexpr int64_t kHalf = int64_t{kPanel} / 2 * 4;
  const int64_t count = Bounded::bounds_of(terms);
  auto* bounds = reinterpret_cast<uint8_t*>(to);
  std::fill_n(bounds, 2 * count, uint8_t{UINT8_MAX});
  int8_t* weights = to + 2 * count;
  for (int64_t half = 0; half < 2; ++half, bounds += count)
    for (int64_t i = 0; i < terms.all(); ++i, weights += kHalf) {
      const int8_t* block = blocks.data() + (2 * i + half) * kHalf;
      int bound = UINT8_MAX;
      for (int64_t k = 0; k < kHalf; k += 2) bound = std::min(bound, bound_of(block[k], block[k + 1]));
      bounds[i / terms.groups * Bounded::bounds_of(terms.groups) + i % terms.groups] =
          static_cast<uint8_t>(bound);
      std::copy_n(block, kHalf, weights);
    }
}

} // namespace

bool has_high_bounds(const int8_t* panel, const Terms& terms) {
  constexpr int64_t kLeastGroups = 8;
  constexpr int kHigh = 200;
  constexpr double kMostLow = 0.15;
  if (terms.groups < kLeastGroups) return false;
  const Bounded bounded(panel + panel_head(Form::bounded_quads), terms);
  // Two halves, one behind the other; what fills them up is high.
  const auto low = std::count_if(bounded.bounds[0], bounded.bounds[0] + 2 * Bounded::bounds_of(terms),
                                 [](uint8_t bound) { return bound < kHigh; });
  return static_cast<double>(low) <= kMostLow * 2 * static_cast<double>(terms.all());
}

void pack_panel(Form form, int64_t panel, int64_t columns, const void* weights, DType type,
                const WeightSteps& steps, int8_t* to) {
  const int64_t first = panel * kPanel, width = std::min<int64_t>(kPanel, columns - first),
                group = group_of(form);
  const auto depth = static_cast<int64_t>(steps.terms.size());
  const auto* from = static_cast<const int8_t*>(weights) + first * steps.column;
  const int turned = form != Form::pairs && type == DType::u8 ? kTurned : 0;
  const int64_t* terms = steps.terms.data();
  std::array<int32_t, kPanel> totals{};
  std::vector<int8_t> blocks;
  const Terms all{nullptr, static_cast<int64_t>(steps.places.size()), ceil_div(depth, group)};
  if (form == Form::bounded_quads) blocks.resize(static_cast<size_t>(all.all() * kPanel * group));
  int8_t* at = form == Form::bounded_quads ? blocks.data() : to + panel_head(form);
  for (int64_t place : steps.places)
    for (int64_t l = 0; l < depth; l += group, at += kPanel * group) {
      std::array<int8_t, size_t{kPanel} * 4> block{}; // no memory that `terms` could lie in
      for (int64_t k = 0; k < std::min(group, depth - l); ++k) {
        const int8_t* one = from + place + terms[l + k];
        for (int64_t j = 0; j < width; ++j, one += steps.column) {
          const auto weight = static_cast<int8_t>(*one ^ turned);
          block[static_cast<size_t>(j * group + k)] = weight;
          totals[static_cast<size_t>(j)] += weight;
        }
      }
      std::copy_n(block.begin(), kPanel * group, at);
    }
  if (form == Form::bounded_quads) bound_groups(blocks, all, to + panel_head(form));
  if (panel_head(form) > 0) std::memcpy(to, totals.data(), sizeof totals);
}

template <class N>
int64_t turn(const void* from, DType type, int64_t channel_step, int64_t count, int64_t channels,
             int32_t zero, const void* end, N* to) {
  return type == DType::u8
             ? turn_all(static_cast<const uint8_t*>(from), channel_step, count, channels, zero, end, to)
             : turn_all(static_cast<const int8_t*>(from), channel_step, count, channels, zero, end, to);
}
template int64_t turn(const void*, DType, int64_t, int64_t, int64_t, int32_t, const void*, int16_t*);
template int64_t turn(const void*, DType, int64_t, int64_t, int64_t, int32_t, const void*, uint8_t*);

} // namespace tbx::extern_kernels::bytes
