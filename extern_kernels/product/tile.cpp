#include "extern_kernels/product/tile.h"

#include <algorithm>

#include "base/isa.h"
#include "extern_kernels/vector_tile.h"

namespace tbx::extern_kernels::product {
namespace {

constexpr int64_t kLine = 16; ///< floats of a line of the cache
constexpr int64_t kPart = 4;  ///< of the depth, between fetches

/// Rows of sums that leave registers for the operands.
template <int B, int Vectors> inline constexpr int kRows = ((B == 64 ? 32 : 16) - Vectors - 1) / Vectors;

template <class V> [[gnu::always_inline]] inline void clip(V& v, const V& lo, const V& hi) {
  v = v < lo ? lo : v;
  v = v > hi ? hi : v;
}

/// What is fetched while a tile is computed, line after line: some with each part of the depth, for many at
/// once would wait for each other, and loads behind them.
struct Fetch {
  const float* from;
  int64_t lines, some;
};

template <int B, int Vectors, int Count>
[[gnu::always_inline]] inline void multiply_rows(const Strip& s, int64_t first, const Fetch& fetch) {
  using Lanes = typename VectorOf<B>::Lanes;
  constexpr int64_t kLanes = B / 4;
  Lanes sum[Count][Vectors] = {};
  auto each = [&](auto&& f) __attribute__((always_inline)) {
#pragma GCC unroll 14
    for (int r = 0; r < Count; ++r)
#pragma GCC unroll 6
      for (int v = 0; v < Vectors; ++v) f(sum[r][v], r, v * kLanes);
  };
  for (int k = 0; k < 2; ++k) {
    if (!s.starts[k]) continue;
    const int64_t step = s.start_steps[k];
    const float* start = s.starts[k] + first * step;
    each([&](Lanes & x, int r, int64_t column) __attribute__((always_inline)) {
      Lanes other;
      __builtin_memcpy(&other, start + r * step + column, B);
      x += other;
    });
  }
  const float* rows = s.rows + first * s.row_step;
  const float *ahead = fetch.from, *end = ahead + fetch.lines * kLine;
  auto fetch_line = [&]() __attribute__((always_inline)) {
    if (ahead < end) __builtin_prefetch(ahead, 0, 2);
    ahead += kLine;
  };
  int64_t l = 0;
  for (; l + kPart <= s.depth; l += kPart) {
    for (int64_t i = 0; i < fetch.some; ++i) fetch_line();
    add_products<B, Count, Vectors, Vectors * kLanes>(rows + l, s.row_step, kPart,
                                                      s.panel + l * Vectors * kLanes, sum);
  }
  add_products<B, Count, Vectors, Vectors * kLanes>(rows + l, s.row_step, s.depth - l,
                                                    s.panel + l * Vectors * kLanes, sum);
  while (ahead < end) fetch_line();
  if (s.ending.kind != Ending::none) {
    const Lanes lo = Lanes{} + s.ending.lo, hi = Lanes{} + s.ending.hi;
    if (s.ending.kind == Ending::clip)
      each([&](Lanes & x, int, int64_t) __attribute__((always_inline)) { clip(x, lo, hi); });
    else
      each([&](Lanes & x, int, int64_t) __attribute__((always_inline)) {
        Lanes gate = x * (1.0f / 6) + 0.5f;
        clip(gate, lo, hi);
        x = x * gate;
      });
  }
  const int64_t step = s.to_step;
  float* to = s.to + first * step;
  each([&](Lanes & x, int r, int64_t column)
           __attribute__((always_inline)) { __builtin_memcpy(to + r * step + column, &x, B); });
}

/// `count` rows, at most `Most`.
template <int B, int Vectors, int Most>
[[gnu::always_inline]] inline void multiply_some(const Strip& s, int64_t first, int64_t count,
                                                 const Fetch& fetch) {
  if (count == Most) return multiply_rows<B, Vectors, Most>(s, first, fetch);
  if constexpr (Most > 1) multiply_some<B, Vectors, Most - 1>(s, first, count, fetch);
}

/// Where a tile goes, and what the next one begins with: rows far from each other, which no hardware
/// foresees.
template <int Most, int Columns>
[[gnu::always_inline]] inline void fetch_rows(const Strip& s, int64_t first, int64_t count) {
  for (int64_t r = first; r < first + count; ++r) __builtin_prefetch(s.to + r * s.to_step, 1);
  const int64_t next = first + count, end = std::min(s.count, next + Most);
  for (int k = 0; k < 2; ++k) {
    if (s.start_steps[k] <= Columns) continue;
    for (int64_t r = next; r < end; ++r) __builtin_prefetch(s.starts[k] + r * s.start_steps[k]);
  }
}

template <int B, int Vectors> [[gnu::always_inline]] inline void multiply_strip(const Strip& s) {
  constexpr int64_t kMost = kRows<B, Vectors>;
  const int64_t tiles = (s.count + kMost - 1) / kMost;
  if (tiles == 0) return;
  const int64_t least = s.count / tiles, larger = s.count % tiles; // few rows do not fill the pipelines
  const int64_t fetched = ((s.next_count + tiles - 1) / tiles + kLine - 1) / kLine * kLine;
  int64_t first = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t count = least + (i < larger);
    fetch_rows<kMost, Vectors * B / 4>(s, first, count);
    const int64_t at = std::min(s.next_count, i * fetched), end = std::min(s.next_count, at + fetched),
                  lines = (end - at + kLine - 1) / kLine, parts = std::max<int64_t>(1, s.depth / kPart);
    multiply_some<B, Vectors, kMost>(s, first, count, {s.next + at, lines, (lines + parts - 1) / parts});
    first += count;
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_TILES(name, target, bytes)                                                                       \
  template <int Vectors> target void multiply_##name(const Strip& strip) {                                   \
    multiply_strip<bytes, Vectors>(strip);                                                                   \
  }                                                                                                          \
  template <int Vectors> Tile tile_##name() {                                                                \
    return {kRows<bytes, Vectors>, Vectors * bytes / 4, multiply_##name<Vectors>};                           \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_TILES(plain, , 16)
#if defined(__x86_64__)
TBX_TILES(avx2, __attribute__((target("avx2,fma"))), 32)
TBX_TILES(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), 64)
#endif
#undef TBX_TILES

} // namespace

const Tiles& tiles() {
  static const Tiles best = []() -> Tiles {
#if defined(__x86_64__)
    switch (host_isa()) {
    case Isa::avx512: return {tile_avx512<4>(), tile_avx512<6>()};
    case Isa::avx2: return {tile_avx2<2>(), tile_avx2<3>()};
    case Isa::sse: break;
    }
#endif
    return {tile_plain<2>(), tile_plain<3>()};
  }();
  return best;
}

} // namespace tbx::extern_kernels::product
