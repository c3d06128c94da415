#include "extern_kernels/cuda/few_rows_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/dtype.h"
#include "base/rounding.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels::cuda {

namespace {

const char* const kHalfTiles =
#include "extern_kernels/cuda/half_tiles.inc"
    ;

const char* const kEarlyStart =
#include "extern_kernels/cuda/early_start.inc"
    ;

const char* const kTileSums =
#include "extern_kernels/cuda/tile_sums.inc"
    ;

const char* const kText =
#include "extern_kernels/cuda/few_rows_product.inc"
    ;

constexpr int64_t kEach = 8;       ///< halves that are read at once
constexpr int64_t kChunk = 32;     ///< terms that a warp multiplies at a time
constexpr int64_t kMostRows = 256; ///< of more a library is faster
constexpr int64_t kMostTerms = int64_t{1} << 15;
/// Columns of the packed matrix: a multiple of those of each tile.
constexpr int64_t kPaddedColumns = 96;

/// Chunks of a warp.
int64_t chunks_of(const FewRowsShape& s, int64_t k) {
  return ceil_div(ceil_div(k, kChunk), int64_t{s.blocks} * s.warps);
}

/// What a shape is expected to take: bytes that its blocks read, products, and sums that meet. The factors
/// fit measurements of an H200.
double cycles_of(const FewRowsShape& s, int64_t m, int64_t n, int64_t k, int multiprocessors) {
  constexpr double kBytes = 64, kProducts = 800, kSumBytes = 128; // in a cycle
  constexpr double kOfChunk = 60, kOfCluster = 800;
  constexpr int kWarpsAtOnce = 12;                          // of a multiprocessor: registers are scarce
  const int64_t terms = chunks_of(s, k) * kChunk * s.warps; // of a block
  const int64_t blocks = ceil_div(m, s.tile_rows()) * ceil_div(n, s.tile_columns()) * s.blocks;
  const int64_t bytes = (s.tile_rows() + s.tile_columns()) * terms * 2;
  const int64_t tile = s.tile_rows() * s.tile_columns();
  const double of_block = static_cast<double>(bytes) / kBytes +
                          static_cast<double>(tile * terms) / kProducts +
                          static_cast<double>(tile * s.warps * 4) / kSumBytes;
  const int64_t turns = ceil_div(blocks, multiprocessors);
  const bool at_once = turns * s.warps * s.row_warps <= kWarpsAtOnce;
  const double share =
      at_once ? std::max(1.0, static_cast<double>(blocks) / multiprocessors) : static_cast<double>(turns);
  return share * of_block + kOfChunk * static_cast<double>(chunks_of(s, k)) +
         (s.blocks > 1 ? kOfCluster + kOfCluster / 4 * s.blocks : 0);
}

} // namespace

FewRowsExpected expect_few_rows(int64_t m, int64_t n, int64_t k, int multiprocessors, bool clusters) {
  FewRowsExpected best;
  // Shapes whose weights a thread has room for, or a good part of them.
  const FewRowsShape tiles[] = {{1, 6, 1, 1, 4}, {1, 8, 1, 1, 4}, {1, 4, 1, 1, 4}, {1, 6, 1, 2, 4},
                                {1, 8, 1, 2, 4}, {1, 4, 1, 2, 4}, {1, 4, 2, 1, 6}, {1, 2, 2, 1, 6}};
  for (FewRowsShape s : tiles)
    for (s.blocks = 1; s.blocks <= (clusters ? 4 : 1); s.blocks *= 2) {
      if (s.blocks > 1 && ceil_div(k, kChunk) < int64_t{2} * s.blocks * s.warps) continue;
      const double cycles = cycles_of(s, m, n, k, multiprocessors);
      if (best.cycles > 0 && cycles >= best.cycles) continue;
      best = {s, cycles};
    }
  return best;
}

FewRowsProduct::FewRowsProduct(device::Device& device, const OperandInfo& b, Load load, int multiprocessors)
    : device_(device), load_(std::move(load)), has_clusters_(has_clusters(device.properties())),
      overlaps_(begins_early(device.properties())),
      multiprocessors_(multiprocessors > 0 ? multiprocessors : device.properties().multiprocessors) {
  if (!load_) load_ = [&device](const std::string& text) { return loaded(device, text); };
  if (!b.constant || !is_half(b.dtype) || b.sizes.size() < 2) return;
  if (std::any_of(b.sizes.begin(), b.sizes.end() - 2, [](int64_t s) { return s != 1; })) return;
  terms_ = b.sizes.end()[-2], columns_ = b.sizes.back();
}

bool FewRowsProduct::takes(const Gemm& g, const GemmAddresses& at) const {
  if ((g.type != lt::kF16 && g.type != lt::kBf16) || g.result != g.type) return false;
  if (g.batch != 1 || g.a_columns || g.m < 1 || g.n < 1 || g.k < 1) return false;
  if (g.k != terms_ || g.n != columns_ || g.k > kMostTerms) return false;
  if (ceil_div(g.m, 16) * (g.n + kPaddedColumns) > INT32_MAX) return false;
  for (int64_t size : {g.n, g.k, g.a_step, g.c_step, g.residual ? g.residual_step : 0})
    if (size % kEach != 0) return false;
  for (const void* p :
       {at.a, static_cast<const void*>(at.c), g.bias ? at.bias : nullptr, g.residual ? at.residual : nullptr})
    if (alignment_of(p) != 16) return false;
  return true;
}

bool FewRowsProduct::suits(const Gemm& g, const GemmAddresses& at) const {
  constexpr double kMostCycles = 9200; // a library is faster where more are to be expected
  return has_clusters_ && g.m > 1 && g.m <= kMostRows && takes(g, at) &&
         expect_few_rows(g.m, g.n, g.k, multiprocessors_, true).cycles <= kMostCycles;
}

FewRowsShape FewRowsProduct::shape_of(const Gemm& g) const {
  return expect_few_rows(g.m, g.n, g.k, multiprocessors_, has_clusters_).shape;
}

const FewRowsProduct::Kernels& FewRowsProduct::kernels_for(const Gemm& g) const {
  constexpr int64_t kWeights = 24, kRows = 8; // vectors of a thread that are on their way
  const FewRowsShape s = shape_of(g);
  const int64_t chunks = chunks_of(s, g.k);
  const std::string macros = fmt::format(
      "#define HALF {}\n#define TERMS {}\n#define BLOCKS {}\n#define WARPS {}\n#define ROW_WARPS {}\n"
      "#define ROWS {}\n#define COLUMNS {}\n#define HELD {}\n#define AHEAD {}\n#define BIAS {}\n"
      "#define RESIDUAL {}\n#define ACTIVATION {}\n#define OVERLAP {}\n",
      static_cast<int>(half_type(g)), g.k, s.blocks, s.warps, s.row_warps, s.rows, s.columns,
      std::min(chunks, kWeights / s.columns), std::min(chunks, kRows / s.rows), g.bias ? 1 : 0,
      g.residual ? 1 : 0, static_cast<int>(g.activation), overlaps_ ? 1 : 0);
  std::scoped_lock lock(mutex_);
  Kernels& kernels = kernels_[macros];
  if (!kernels.module) {
    kernels.module = load_(macros + kHalfTiles + kEarlyStart + kTileSums + kText);
    kernels.product = kernels.module->kernel("few_rows_product");
    kernels.pack = kernels.module->kernel("pack_few_rows");
    kernels.lead = kernels.module->kernel("lead_few_rows");
  }
  return kernels;
}

FewRowsProduct::Weights FewRowsProduct::kept() const {
  std::scoped_lock lock(mutex_);
  return kept_;
}

bool FewRowsProduct::keep(const Weights& weights) const {
  std::scoped_lock lock(mutex_);
  if (!kept_) kept_ = weights;
  return kept_ == weights;
}

int64_t FewRowsProduct::bytes() const {
  std::scoped_lock lock(mutex_);
  return kept_ ? static_cast<int64_t>(kept_->bytes()) : 0;
}

FewRowsProduct::Weights FewRowsProduct::packed(device::Stream& stream, const Gemm& g,
                                               const GemmAddresses& at) const {
  const Kernels& kernels = kernels_for(g);
  int64_t pieces = ceil_div(g.n, kPaddedColumns) * kPaddedColumns * ceil_div(g.k, kChunk) * kChunk / kEach;
  Weights weights = device_.allocate(static_cast<size_t>(pieces * kEach * 2));
  const void* b = at.b;
  void* to = weights->data();
  int columns = static_cast<int>(g.n);
  int64_t term_step = g.b_columns ? 1 : g.b_step, column_step = g.b_columns ? g.b_step : 1;
  void* pointers[] = {&b, &to, &columns, &term_step, &column_step, &pieces};
  stream.launch(kernels.pack, shape_of_elements(pieces, device_.properties()), pointers);
  stream.synchronize();
  return weights;
}

void FewRowsProduct::run(device::Stream& stream, const Gemm& g, const GemmAddresses& at, float alpha,
                         const device::Memory& weights) const {
  const FewRowsShape s = shape_of(g);
  const Kernels& kernels = kernels_for(g);
  const void *a = at.a, *b = weights.data(), *bias = at.bias, *residual = at.residual;
  void* c = at.c;
  int m = static_cast<int>(g.m), n = static_cast<int>(g.n);
  int row_tiles = static_cast<int>(ceil_div(g.m, s.tile_rows()));
  int64_t a_step = g.a_step, c_step = g.c_step, residual_step = g.residual_step;
  void* pointers[] = {&a, &b, &bias,      &residual, &c,      &alpha,
                      &m, &n, &row_tiles, &a_step,   &c_step, &residual_step};
  device::LaunchShape shape;
  shape.blocks = static_cast<uint32_t>(row_tiles * ceil_div(g.n, s.tile_columns()) * s.blocks);
  shape.threads = static_cast<uint32_t>(32 * s.warps * s.row_warps);
  shape.overlap = overlaps_;
  stream.launch(kernels.product, shape, pointers);
}

void FewRowsProduct::lead(device::Stream& stream, const Gemm& g) const {
  device::LaunchShape shape;
  shape.blocks = 1;
  shape.threads = 32;
  stream.launch(kernels_for(g).lead, shape, {});
}

} // namespace tbx::extern_kernels::cuda
