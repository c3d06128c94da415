// Blocked attention with products of bfloat16 in tiles (AMX): registers of 16 rows of 64 bytes, of which one
// instruction multiplies 16 x 32 by 32 x 16 numbers.
#include "extern_kernels/attention/blocks.h"

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>

#include <algorithm>

#include "extern_kernels/tiles.h"

#define TBX_TARGET __attribute__((target("amx-tile,amx-bf16")))

namespace tbx::extern_kernels::attention {
namespace {

constexpr int64_t kSide = 16;     ///< rows of a tile, and words of a row
constexpr int64_t kPanel = 64;    ///< that of the f32 blocks, which pack the panels
constexpr int64_t kWordBytes = 4; ///< a pair of bfloat16, or a sum

TBX_TARGET void begin() {
  static const TileConfiguration all;
  _tile_loadconfig(&all);
}

TBX_TARGET void end() { _tile_release(); }

/// kRows x kColumns tiles of sums, of which tile 2 * i + j is the one in row i and column j. `a` has rows of
/// `lda` words, `b` of `ldb`.
template <int kRows, int kColumns>
[[gnu::always_inline]] TBX_TARGET inline void tiles(const float* a, int64_t lda, int64_t k, const float* b,
                                                    int64_t ldb, float* c, int64_t ldc, bool add) {
  const int64_t a_bytes = lda * kWordBytes, b_bytes = ldb * kWordBytes, c_bytes = ldc * kWordBytes;
  float* below = c + kSide * ldc;
  if (add) {
    _tile_loadd(0, c, c_bytes);
    if constexpr (kColumns == 2) _tile_loadd(1, c + kSide, c_bytes);
    if constexpr (kRows == 2) _tile_loadd(2, below, c_bytes);
    if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, below + kSide, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t l = 0; l < k; l += kSide) {
    _tile_loadd(6, b + l * ldb, b_bytes);
    _tile_loadd(4, a + l, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns == 2) {
      _tile_loadd(7, b + l * ldb + kSide, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRows == 2) {
      _tile_loadd(5, a + l + kSide * lda, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, c_bytes);
  if constexpr (kColumns == 2) _tile_stored(1, c + kSide, c_bytes);
  if constexpr (kRows == 2) _tile_stored(2, below, c_bytes);
  if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, below + kSide, c_bytes);
}

template <int kColumns>
[[gnu::always_inline]] TBX_TARGET inline void rows_of(const float* a, int64_t lda, int64_t m, int64_t k,
                                                      const float* b, int64_t ldb, float* c, int64_t ldc,
                                                      bool add) {
  int64_t i = 0;
  for (; i + kSide < m; i += 2 * kSide)
    tiles<2, kColumns>(a + i * lda, lda, k, b, ldb, c + i * ldc, ldc, add);
  if (i < m) tiles<1, kColumns>(a + i * lda, lda, k, b, ldb, c + i * ldc, ldc, add);
}

TBX_TARGET void multiply(const float* a, int64_t lda, int64_t m, int64_t k, const float* b, int64_t b_rows,
                         int64_t first, int64_t n, float* c, int64_t ldc, bool add) {
  // Loads of tiles do not tell the compiler which memory they read.
  asm volatile("" ::: "memory");
  for (int64_t j = 0; j < n; j += kPanel) {
    const int64_t width = (std::min(kPanel, n - j) + kSide - 1) / kSide * kSide;
    const float* panel = b + first * width;
    int64_t at = 0;
    for (; at + kSide < width; at += 2 * kSide)
      rows_of<2>(a, lda, m, k, panel + at, width, c + j + at, ldc, add);
    if (at < width) rows_of<1>(a, lda, m, k, panel + at, width, c + j + at, ldc, add);
    b += b_rows * width;
  }
}

Blocks with_tiles() {
  Blocks b = *bf16_blocks();
  b.name = "amx_bf16";
  b.rows = kSide;
  b.step = kSide;
  b.multiply = multiply;
  b.begin = begin;
  b.end = end;
  return b;
}

} // namespace

const Blocks* tile_blocks() {
  static const bool here = bf16_blocks() && has_tile_registers(TileFeature::bf16);
  if (!here) return nullptr;
  static const Blocks all = with_tiles();
  return &all;
}

} // namespace tbx::extern_kernels::attention

#else

namespace tbx::extern_kernels::attention {
const Blocks* tile_blocks() { return nullptr; }
} // namespace tbx::extern_kernels::attention

#endif
