#include "extern_kernels/bytes/tile_product.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tbx::extern_kernels::bytes {

std::optional<TileWork> TileWork::of(std::span<const PostOp> ops) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  TileWork w{.low = -kInfinity, .high = kInfinity};
  size_t at = 0;
  auto next = [&](PostOp::Kind kind) {
    return at < ops.size() && ops[at].kind == kind ? &ops[at++] : nullptr;
  };
  if (ops.empty()) return w;
  if (!next(PostOp::round)) return std::nullopt;
  w.is_more = true;
  if (const PostOp* clip = next(PostOp::clip)) w.low = clip->alpha, w.high = clip->beta;
  if (const PostOp* linear = next(PostOp::linear)) w.alpha = linear->alpha, w.beta = linear->beta;
  if (const PostOp* add = w.beta == 0 ? next(PostOp::add) : nullptr) {
    w.operand = add->operand;
    if (const PostOp* linear = next(PostOp::linear)) w.gamma = linear->alpha, w.delta = linear->beta;
  }
  if (at != ops.size()) return std::nullopt;
  // Behind an operand what saturates is not clipped once more: it has to be an integer of 32 bits.
  auto size = [](float x) { return std::abs(double{x}); };
  const double most = std::max(size(w.low), size(w.high)) * size(w.alpha) + 255;
  if (w.operand >= 0 && !(most * size(w.gamma) + size(w.delta) < INT32_MAX / 2)) return std::nullopt;
  return w;
}

} // namespace tbx::extern_kernels::bytes

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <cstring>

#include "base/task_work.h"
#include "extern_kernels/scratch.h"
#include "extern_kernels/tiles.h"

#define TBX_TARGET __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw")))
#define TBX_INLINE [[gnu::always_inline]] TBX_TARGET inline

namespace tbx::extern_kernels::bytes {
namespace {

constexpr int64_t kLine = 64; ///< bytes of a row of a tile
constexpr int64_t kSide = 16; ///< columns of a tile of sums
constexpr int64_t kHeight = 2 * kTileRows;

/// kRows x 2 tiles of sums.
template <int kRows> TBX_INLINE void multiply(const uint8_t* a, int64_t depth, const int8_t* b) {
  const int8_t* right = b + depth * kSide;
  // Loads of tiles do not tell the compiler which memory they read.
  asm volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t k = 0; k < depth; k += kTileTerms) {
    _tile_loadd(6, b + k * kSide, kLine);
    _tile_loadd(4, a + k, depth);
    _tile_dpbusd(0, 4, 6);
    _tile_loadd(7, right + k * kSide, kLine);
    _tile_dpbusd(1, 4, 7);
    if constexpr (kRows == 2) {
      _tile_loadd(5, a + k + kTileRows * depth, depth);
      _tile_dpbusd(2, 5, 6);
      _tile_dpbusd(3, 5, 7);
    }
  }
}

TBX_INLINE void store(int32_t* sums) {
  constexpr int64_t kStep = kTileColumns * 4;
  int32_t* below = sums + kTileRows * kTileColumns;
  _tile_stored(0, sums, kStep);
  _tile_stored(1, sums + kSide, kStep);
  _tile_stored(2, below, kStep);
  _tile_stored(3, below + kSide, kStep);
  asm volatile("" ::: "memory");
}

/// Of sixteen columns.
struct Columns {
  __m512 scale, bias;
};

/// Of all of them.
struct Numbers {
  __m512 low, high, alpha, beta, gamma, delta;
};

/// Sixteen sums as integers that are still to saturate.
template <bool kMore, bool kOperand>
TBX_INLINE __m512i finish(const int32_t* sums, const Columns& c, const Numbers& n, const uint8_t* operand) {
  __m512 x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sums)), c.scale, c.bias);
  if constexpr (kMore) {
    x = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    x = _mm512_min_ps(n.high, _mm512_max_ps(n.low, x));
  }
  if constexpr (kOperand) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(operand));
    x = _mm512_fmadd_ps(x, n.alpha, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
    x = _mm512_fmadd_ps(x, n.gamma, n.delta);
  } else if constexpr (kMore) {
    x = _mm512_fmadd_ps(x, n.alpha, n.beta);
  }
  if constexpr (!kOperand) x = _mm512_min_ps(_mm512_set1_ps(255), x);
  return _mm512_cvtps_epi32(x);
}

template <bool kMore, bool kOperand>
TBX_TARGET void finish_all(const TileProduct& p, const int32_t* sums, int64_t row, int64_t count,
                           int64_t column) {
  const TileWork& w = p.work;
  const Numbers n{_mm512_set1_ps(w.low),  _mm512_set1_ps(w.high),  _mm512_set1_ps(w.alpha),
                  _mm512_set1_ps(w.beta), _mm512_set1_ps(w.gamma), _mm512_set1_ps(w.delta)};
  Columns c[2];
  for (int j = 0; j < 2; ++j) {
    const int64_t at = column + j * kSide;
    c[j].scale = p.is_of_columns ? _mm512_loadu_ps(p.scale + at) : _mm512_set1_ps(*p.scale);
    c[j].bias = p.bias ? _mm512_loadu_ps(p.bias + at) : _mm512_setzero_ps();
  }
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int64_t r = 0; r < count; r += 2) {
    __m512i x[2][2];
    uint8_t* to = p.result + (row + r) * p.columns + column;
    const int64_t second = r + 1 < count ? p.columns : 0;
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i)
#pragma GCC unroll 2
      for (int j = 0; j < 2; ++j)
        x[i][j] = finish<kMore, kOperand>(sums + (r + i) * kTileColumns + j * kSide, c[j], n,
                                          kOperand ? p.operand + (to - p.result) + i * second + j * kSide
                                                   : nullptr);
    const __m512i rows =
        _mm512_permutexvar_epi32(order, _mm512_packus_epi16(_mm512_packs_epi32(x[0][0], x[0][1]),
                                                            _mm512_packs_epi32(x[1][0], x[1][1])));
    if (second)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + second), _mm512_extracti64x4_epi64(rows, 1));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(rows));
  }
}

/// Where a row begins in `a`.
int64_t place(const TileProduct& p, int64_t row) {
  if (p.pixels == 0) return row * p.depth;
  return row / (p.lines * p.pixels) * p.image_step + row / p.pixels % p.lines * p.line_step +
         row % p.pixels * p.pixel_step;
}

/// Some of the rows, and of the columns by blocks of as many as tiles have.
struct Part {
  int64_t row, end, block, end_block;
};

TBX_TARGET void compute(const TileProduct& p, Part part) {
  static const TileConfiguration all;
  _tile_loadconfig(&all);
  const auto finish_some = p.work.operand >= 0 ? finish_all<true, true>
                           : p.work.is_more    ? finish_all<true, false>
                                               : finish_all<false, false>;
  // Rows that lie apart are copied, as many as half of a second cache holds, and so is a last block that is
  // not whole.
  constexpr int64_t kCopied = 256 << 10;
  const int64_t together =
      p.pixels == 0 ? part.end - part.row : std::max<int64_t>(kCopied / p.depth / kHeight, 1) * kHeight;
  const Scratch scratch(((p.pixels == 0 ? 0 : std::min(together, part.end - part.row)) + kHeight) * p.depth);
  auto* copy = reinterpret_cast<uint8_t*>(scratch.data());
  // Sums stay in their tiles while what is done to those before them goes on beside the products.
  alignas(64) int32_t sums[kHeight * kTileColumns];
  struct {
    int64_t row, count, column;
  } before{};
  for (int64_t row = part.row; row < part.end; row += together) {
    const int64_t end = std::min(part.end, row + together), last = row + (end - row - 1) / kHeight * kHeight;
    const int64_t copied = p.pixels != 0 ? row : last + kHeight > p.rows ? last : end;
    for (int64_t i = copied; i < end; ++i)
      std::memcpy(copy + (i - copied) * p.depth, p.a + place(p, i), static_cast<size_t>(p.depth));
    for (int64_t block = part.block; block < part.end_block; ++block)
      for (int64_t i = row; i < end; i += kHeight) {
        const uint8_t* a = i < copied ? p.a + i * p.depth : copy + (i - copied) * p.depth;
        const int8_t* weights = p.weights + block * kTileColumns * p.depth;
        const int64_t count = std::min(kHeight, end - i);
        if (count > kTileRows)
          multiply<2>(a, p.depth, weights);
        else
          multiply<1>(a, p.depth, weights);
        if (before.count > 0) finish_some(p, sums, before.row, before.count, before.column);
        store(sums);
        before = {i, count, block * kTileColumns};
      }
  }
  finish_some(p, sums, before.row, before.count, before.column);
  _tile_release();
}

} // namespace

void TileProduct::run() const {
  // Threads that share the columns read rows that others have written; those that share the rows read all
  // weights.
  constexpr int64_t kFew = 8;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows, blocks = columns / kTileColumns;
  int64_t threads = tbb::this_task_arena::max_concurrency();
  if (static_cast<double>(rows * depth) * static_cast<double>(columns) < kTaskWork.factors) threads = 1;
  int64_t across = columns > kFew * rows ? std::min(threads, blocks) : 1;
  const int64_t down = std::min(threads / across, tiles);
  if (across == 1) across = std::min(threads / down, blocks);
  tbb::parallel_for(
      int64_t{0}, across * down,
      [&](int64_t i) {
        const int64_t x = i % across, y = i / across;
        compute(*this, {tiles * y / down * kTileRows, std::min(rows, tiles * (y + 1) / down * kTileRows),
                        blocks * x / across, blocks * (x + 1) / across});
      },
      tbb::static_partitioner());
}

bool has_byte_tiles() {
  static const bool here = has_tile_registers(TileFeature::bytes);
  return here;
}

} // namespace tbx::extern_kernels::bytes
#else
namespace tbx::extern_kernels::bytes {
void TileProduct::run() const {}
bool has_byte_tiles() { return false; }
} // namespace tbx::extern_kernels::bytes
#endif
