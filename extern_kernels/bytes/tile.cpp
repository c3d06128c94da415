#include "extern_kernels/bytes/tile.h"

#include <atomic>
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
      for (int64_t g = 0; g < terms.groups; ++g, panel += kPanel * group_of(form)) {                         \
        const __m256i low = weights(panel, 0), high = weights(panel, 1);                                     \
        _Pragma("GCC unroll 6") for (int r = 0; r < Count; ++r) {                                            \
          const __m256i x = group_at(row[r] + 4 * g);                                                        \
          sum[r][0] = add(sum[r][0], x, low);                                                                \
          sum[r][1] = add(sum[r][1], x, high);                                                               \
        }                                                                                                    \
      }                                                                                                      \
    }                                                                                                        \
    _Pragma("GCC unroll 6") for (int64_t r = 0; r < Count; ++r) {                                            \
      auto* to = reinterpret_cast<__m256i*>(sums + r * kPanel);                                              \
      _mm256_storeu_si256(to, sum[r][0]);                                                                    \
      _mm256_storeu_si256(to + 1, sum[r][1]);                                                                \
    }                                                                                                        \
  }                                                                                                          \
  void name(const Tile& t, const Terms& terms, int32_t* sums) {                                              \
    switch (t.count) {                                                                                       \
    case 1: return name<1>(t, terms, sums);                                                                  \
    case 2: return name<2>(t, terms, sums);                                                                  \
    case 3: return name<3>(t, terms, sums);                                                                  \
    case 4: return name<4>(t, terms, sums);                                                                  \
    case 5: return name<5>(t, terms, sums);                                                                  \
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

/// The terms of every group in the order of a pairing.
TBX_AVX2_INLINE __m256i order_of(int pairing) {
  const int* order = kPairing[pairing];
  int32_t bytes = 0;
  for (int i = 0; i < 4; ++i) bytes |= order[i] << 8 * i;
  return _mm256_add_epi32(_mm256_set1_epi32(bytes), _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c,
                                                                      0, 0x04040404, 0x08080808, 0x0c0c0c0c));
}

/// Half of the columns of a tile.
template <int Count>
TBX_AVX2 void tile_sorted(const Tile& t, const Terms& terms, int half, const Sorted& panel, int32_t* sums) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum[Count];
#pragma GCC unroll 6
  for (int r = 0; r < Count; ++r) sum[r] = start_of(t, half);
  const int32_t* numbers = panel.numbers[half];
  const int8_t* weights = panel.weights[half];
  const int32_t* ends = panel.ends + int64_t{half} * kPairings;
  int64_t i = 0;
  for (; i < ends[0]; ++i) {
    const int64_t offset = terms.offsets[numbers[i]];
    const __m256i w = quads(weights + 32 * i, 0);
#pragma GCC unroll 6
    for (int r = 0; r < Count; ++r) {
      const __m256i twos = _mm256_maddubs_epi16(group_at(t.rows[r] + offset), w);
      sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(twos, ones));
    }
  }
  for (int pairing = 1; pairing < kPairings; ++pairing) {
    const __m256i order = order_of(pairing);
    for (; i < ends[pairing]; ++i) {
      const int64_t offset = terms.offsets[numbers[i]];
      const __m256i w = quads(weights + 32 * i, 0);
#pragma GCC unroll 6
      for (int r = 0; r < Count; ++r) {
        const __m256i x = _mm256_shuffle_epi8(group_at(t.rows[r] + offset), order);
        sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(_mm256_maddubs_epi16(x, w), ones));
      }
    }
  }
  for (const int64_t all = terms.all(); i < all; ++i) {
    const int64_t offset = terms.offsets[numbers[i]];
    const __m256i w = quads(weights + 32 * i, 0), odd = _mm256_srai_epi16(w, 8),
                  even = _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8);
#pragma GCC unroll 6
    for (int r = 0; r < Count; ++r) {
      const __m256i x = group_at(t.rows[r] + offset);
      const __m256i evens = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0xff)), even),
                    odds = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), odd);
      sum[r] = _mm256_add_epi32(sum[r], _mm256_add_epi32(evens, odds));
    }
  }
#pragma GCC unroll 6
  for (int64_t r = 0; r < Count; ++r)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + r * kPanel) + half, sum[r]);
}

template <int Count> void sorted_halves(const Tile& t, const Terms& terms, int32_t* sums) {
  const Sorted panel(t.panel, terms.all());
  for (int half = 0; half < 2; ++half) tile_sorted<Count>(t, terms, half, panel, sums);
}

void sorted_halves(const Tile& t, const Terms& terms, int32_t* sums) {
  switch (t.count) {
  case 1: return sorted_halves<1>(t, terms, sums);
  case 2: return sorted_halves<2>(t, terms, sums);
  case 3: return sorted_halves<3>(t, terms, sums);
  case 4: return sorted_halves<4>(t, terms, sums);
  case 5: return sorted_halves<5>(t, terms, sums);
  default: return sorted_halves<6>(t, terms, sums);
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
  else if (form == Form::sorted_quads)
    sorted_halves(tile, terms, sums);
  else if (unsigned_weights)
    tile_unsigned_pairs(tile, terms, sums);
  else
    tile_pairs(tile, terms, sums);
}

// No level of instructions has them: they are taken where no level is asked for but the CPU's own.
static Form find_form() {
  if (host_isa() < Isa::avx2) return Form::pairs;
  return host_isa() == cpu_isa() && quads_of_cpu() ? Form::quads : Form::sorted_quads;
}
#else
void multiply(Form, const Tile&, const Terms&, bool, int32_t*) { TBX_INTERNAL(false); }
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
