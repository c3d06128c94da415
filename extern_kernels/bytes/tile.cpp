#include "extern_kernels/bytes/tile.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/isa.h"
#include "extern_kernels/bytes/avx2.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tbx::extern_kernels::bytes {

#if defined(__x86_64__)
namespace {

TBX_AVX2_INLINE __m256i signed_pairs(const int8_t* from, int half) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + half));
}
TBX_AVX2_INLINE __m256i unsigned_pairs(const int8_t* from, int half) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + half));
}
TBX_AVX2_INLINE __m256i quads(const int8_t* from, int half) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from) + half);
}

TBX_AVX2_INLINE __m256i start_of(const Tile& t, int half) {
  return t.starts ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.starts) + half)
                  : _mm256_setzero_si256();
}

/// A group in every lane.
TBX_AVX2_INLINE __m256i group_at(const std::byte* from) {
  int32_t group;
  std::memcpy(&group, from, sizeof group);
  return _mm256_set1_epi32(group);
}

/// As many rows as there are loops for, of which none is too slow for its size: some are computed twice.
int count_beside(const Tile& t) { return t.count == 1 ? 1 : t.count <= 3 ? 3 : 6; }

#define TBX_ADD_PAIRS(sum, x, w) _mm256_add_epi32(sum, _mm256_madd_epi16(w, x))

// NOLINTBEGIN(bugprone-macro-parentheses): names and attributes take none
/// Tiles of `Count` rows for these instructions.
#define TBX_TILE(name, isa, form, weights, add)                                                              \
  template <int Count>                                                                                       \
  __attribute__((target(isa))) void name(const Tile& t, const Terms& terms, int32_t* sums) {                 \
    __m256i sum[Count][2];                                                                                   \
    _Pragma("GCC unroll 6") for (int r = 0; r < Count; ++r) {                                                \
      sum[r][0] = start_of(t, 0);                                                                            \
      sum[r][1] = start_of(t, 1);                                                                            \
    }                                                                                                        \
    const int8_t* panel = t.panel;                                                                           \
    for (int64_t place = 0; place < terms.count; ++place) {                                                  \
      const std::byte* row[Count];                                                                           \
      _Pragma("GCC unroll 6") for (int r = 0; r < Count; ++r) row[r] =                                       \
          t.rows[r] + terms.places[place] * number_bytes(form);                                              \
      _Pragma("GCC unroll 4") for (int64_t g = 0; g < terms.groups; ++g) {                                   \
        const __m256i low = weights(panel, 0), high = weights(panel, 1);                                     \
        _Pragma("GCC unroll 6") for (int r = 0; r < Count; ++r) {                                            \
          const __m256i x = group_at(row[r] + 4 * g);                                                        \
          sum[r][0] = add(sum[r][0], x, low);                                                                \
          sum[r][1] = add(sum[r][1], x, high);                                                               \
        }                                                                                                    \
        panel += kPanel * group_of(form);                                                                    \
      }                                                                                                      \
    }                                                                                                        \
    _Pragma("GCC unroll 6") for (int64_t r = 0; r < Count; ++r) {                                            \
      auto* to = reinterpret_cast<__m256i*>(sums + r * kPanel);                                              \
      _mm256_storeu_si256(to, sum[r][0]);                                                                    \
      _mm256_storeu_si256(to + 1, sum[r][1]);                                                                \
    }                                                                                                        \
  }                                                                                                          \
  void name(const Tile& t, const Terms& terms, int32_t* sums) {                                              \
    switch (count_beside(t)) {                                                                               \
    case 1: return name<1>(t, terms, sums);                                                                  \
    case 3: return name<3>(t, terms, sums);                                                                  \
    default: return name<6>(t, terms, sums);                                                                 \
    }                                                                                                        \
  }
// NOLINTEND(bugprone-macro-parentheses)
TBX_TILE(tile_pairs, "avx2,fma", Form::pairs, signed_pairs, TBX_ADD_PAIRS)
TBX_TILE(tile_unsigned_pairs, "avx2,fma", Form::pairs, unsigned_pairs, TBX_ADD_PAIRS)
TBX_TILE(tile_quads, "avx2,fma,avxvnni", Form::quads, quads, _mm256_dpbusd_avx_epi32)
TBX_TILE(tile_wide_quads, "avx2,fma,avx512vl,avx512vnni", Form::quads, quads, _mm256_dpbusd_epi32)
#undef TBX_TILE
#undef TBX_ADD_PAIRS

/// Half of the columns of a tile.
template <int Count>
TBX_AVX2 void tile_bounded(const Tile& t, const Terms& terms, int half, const Bounded& panel, int32_t* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum[Count];
#pragma GCC unroll 6
  for (int r = 0; r < Count; ++r) sum[r] = start_of(t, half);
  const int8_t* weights = panel.weights[half];
  const uint8_t *bounds = panel.bounds[half], *largest = t.largest;
  for (int64_t place = 0; place < terms.count; ++place) {
    const std::byte* row[Count];
#pragma GCC unroll 6
    for (int r = 0; r < Count; ++r) row[r] = t.rows[r] + terms.places[place];
    for (int64_t first = 0, g = 0; first < terms.groups; first += 32, bounds += 32, largest += 32) {
      const __m256i most = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(largest)),
                    bound = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bounds));
      // Groups with a byte above the bound: few, and none beyond the last group. Where they are many, all are
      // taken as such, since what comes next could not be predicted.
      auto large = static_cast<uint32_t>(
          ~_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(bound, most), bound)));
      const int64_t end = std::min(first + 32, terms.groups);
      if (int64_t{3} * std::popcount(large) > end - first) large = ~uint32_t{0} >> (32 - (end - first));
      for (;; large &= large - 1) {
        const int64_t next = large != 0 ? first + std::countr_zero(large) : end;
#pragma GCC unroll 2
        for (; g < next; ++g) {
          const __m256i w = quads(weights + 32 * g, 0);
#pragma GCC unroll 6
          for (int r = 0; r < Count; ++r) {
            const __m256i twos = _mm256_maddubs_epi16(group_at(row[r] + 4 * g), w);
            sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(twos, ones));
          }
        }
        if (large == 0) break;
        const __m256i w = quads(weights + 32 * g, 0), odd = _mm256_srai_epi16(w, 8),
                      even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
#pragma GCC unroll 6
        for (int r = 0; r < Count; ++r) {
          const __m256i x = group_at(row[r] + 4 * g);
          const __m256i evens = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0xff)), even),
                        odds = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), odd);
          sum[r] = _mm256_add_epi32(sum[r], _mm256_add_epi32(evens, odds));
        }
        ++g;
      }
    }
    weights += 32 * terms.groups;
  }
#pragma GCC unroll 6
  for (int64_t r = 0; r < Count; ++r)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * kPanel) + half, sum[r]);
}

template <int Count> void bounded_halves(const Tile& t, const Terms& terms, int32_t* sums) {
  const Bounded panel(t.panel, terms);
  for (int half = 0; half < 2; ++half) tile_bounded<Count>(t, terms, half, panel, sums);
}

void bounded_halves(const Tile& t, const Terms& terms, int32_t* sums) {
  switch (count_beside(t)) {
  case 1: return bounded_halves<1>(t, terms, sums);
  case 3: return bounded_halves<3>(t, terms, sums);
  default: return bounded_halves<6>(t, terms, sums);
  }
}

/// The largest of the four bytes in each of eight groups, in lanes of 32 bits.
TBX_AVX2_INLINE __m256i largest_of_four(__m256i x) {
  x = _mm256_max_epu8(x, _mm256_srli_epi32(x, 16));
  return _mm256_and_si256(_mm256_max_epu8(x, _mm256_srli_epi32(x, 8)), _mm256_set1_epi32(0xff));
}

TBX_AVX2 void largest_in_avx2(const std::byte* const* rows, int count, const Terms& terms, uint8_t* to) {
  constexpr int64_t kEight = 8;
  for (int64_t place = 0; place < terms.count; ++place, to += Bounded::bounds_of(terms.groups))
    for (int64_t g = 0; g < Bounded::bounds_of(terms.groups); g += kEight) {
      const int64_t at = terms.places[place] + 4 * g, some = std::min(kEight, terms.groups - g);
      __m256i most = _mm256_setzero_si256();
      for (int r = 0; r < count && some > 0; ++r) {
        __m256i row = _mm256_setzero_si256();
        if (some == kEight)
          row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rows[r] + at));
        else // nothing beyond the last group may be read
          std::memcpy(&row, rows[r] + at, static_cast<size_t>(4 * some));
        most = _mm256_max_epu8(most, row);
      }
      most = largest_of_four(most);
      const __m128i pairs = _mm_packus_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to + g), _mm_packus_epi16(pairs, pairs));
    }
}

/// AVX-VNNI. The bit itself: not every compiler knows its name.
bool has_vnni_of_avx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}

using Quads = void (*)(const Tile&, const Terms&, int32_t*);

/// Null: none. Which of the two a CPU has says nothing of the other one.
Quads find_quads() {
  if (cpu_isa() >= Isa::avx2 && has_vnni_of_avx()) return tile_quads;
  if (cpu_isa() == Isa::avx512 && __builtin_cpu_supports("avx512vnni")) return tile_wide_quads;
  return nullptr;
}

Quads quads_of_cpu() {
  static const Quads found = find_quads();
  return found;
}

} // namespace

void multiply(Form form, const Tile& tile, const Terms& terms, bool unsigned_weights, int32_t* sums) {
  if (form == Form::quads)
    quads_of_cpu()(tile, terms, sums);
  else if (form == Form::bounded_quads)
    bounded_halves(tile, terms, sums);
  else if (unsigned_weights)
    tile_unsigned_pairs(tile, terms, sums);
  else
    tile_pairs(tile, terms, sums);
}

void largest_bytes(const std::byte* const* rows, int count, const Terms& terms, uint8_t* to) {
  largest_in_avx2(rows, count, terms, to);
}

// No level of instructions has them: they are taken where no level is asked for but the CPU's own.
static Form find_form() {
  if (host_isa() < Isa::avx2) return Form::pairs;
  return host_isa() == cpu_isa() && quads_of_cpu() ? Form::quads : Form::bounded_quads;
}
#else
void multiply(Form, const Tile&, const Terms&, bool, int32_t*) { TBX_INTERNAL(false); }
void largest_bytes(const std::byte* const*, int, const Terms&, uint8_t*) { TBX_INTERNAL(false); }
static Form find_form() { return Form::pairs; }
#endif

static std::atomic<std::optional<Form>> pretended;

Form best_form() {
  static const Form found = find_form();
  return pretended.load().value_or(found);
}

PretendedForm::PretendedForm(Form form) { pretended = form; }
PretendedForm::~PretendedForm() { pretended = std::nullopt; }

} // namespace tbx::extern_kernels::bytes
