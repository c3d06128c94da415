#include "extern_kernels/cuda/few_rows_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/dtype.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels::cuda {

namespace {

const char* const kText =
#include "extern_kernels/cuda/few_rows_product.inc"
    ;

constexpr int64_t kTile = 64;                                        ///< rows, columns and terms of a tile
constexpr uint32_t kSharedBytes = 4 * 2 * 64 * 64 * 2 + 64 * 68 * 4; ///< of a block, as the text has it
constexpr int64_t kEach = 8;                                         ///< halves that are read at once

int64_t tiles(int64_t n) { return (n + kTile - 1) / kTile; }
bool is_aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

} // namespace

FewRowsProduct::FewRowsProduct(device::Device& device, Load load, int multiprocessors)
    : device_(device), load_(std::move(load)), has_clusters_(has_clusters(device.properties())),
      multiprocessors_(multiprocessors > 0 ? multiprocessors : device.properties().multiprocessors) {
  if (!load_) load_ = [&device](const std::string& text) { return loaded(device, text); };
}

bool FewRowsProduct::takes(const Gemm& g, const GemmAddresses& at) const {
  if ((g.type != lt::kF16 && g.type != lt::kBf16) || g.result != g.type) return false;
  if (g.batch != 1 || g.a_columns || g.m < 1 || g.n < 1 || g.k < 1) return false;
  constexpr int64_t kMost = INT32_MAX - 8 * kTile;
  if (std::max({g.m, g.n, g.k, tiles(g.m) * tiles(g.n) * kLargestCluster}) > kMost) return false;
  for (int64_t size : {g.n, g.k, g.a_step, g.b_step, g.c_step, g.residual ? g.residual_step : 0})
    if (size % kEach != 0) return false;
  for (const void* p : {at.a, at.b, static_cast<const void*>(at.c), g.bias ? at.bias : nullptr,
                        g.residual ? at.residual : nullptr})
    if (!is_aligned(p)) return false;
  return true;
}

bool FewRowsProduct::suits(const Gemm& g, const GemmAddresses& at) const {
  return has_clusters_ && takes(g, at) && blocks_of_cluster(g) > 1;
}

/// As many as the device has places for, each with a tile of terms at least.
int FewRowsProduct::blocks_of_cluster(const Gemm& g) const {
  int64_t blocks = 1;
  while (has_clusters_ && blocks < kLargestCluster && 2 * blocks <= tiles(g.k) &&
         tiles(g.m) * tiles(g.n) * 2 * blocks <= multiprocessors_)
    blocks *= 2;
  return static_cast<int>(blocks);
}

device::Kernel FewRowsProduct::kernel_for(const Gemm& g) const {
  const std::string text = fmt::format(
      "#define HALF {}\n#define BLOCKS {}\n#define TURNED {}\n#define BIAS {}\n#define RESIDUAL {}\n"
      "#define ACTIVATION {}\n{}",
      static_cast<int>(half_type(g)), blocks_of_cluster(g), g.b_columns ? 1 : 0, g.bias ? 1 : 0,
      g.residual ? 1 : 0, static_cast<int>(g.activation), kText);
  std::scoped_lock lock(mutex_);
  std::shared_ptr<device::Module>& module = modules_[text];
  if (!module) module = load_(text);
  return module->kernel("few_rows_product");
}

void FewRowsProduct::run(device::Stream& stream, const Gemm& g, const GemmAddresses& at, float alpha) const {
  const int blocks = blocks_of_cluster(g);
  const device::Kernel kernel = kernel_for(g);
  const void *a = at.a, *b = at.b, *bias = at.bias, *residual = at.residual;
  void* c = at.c;
  int m = static_cast<int>(g.m), n = static_cast<int>(g.n), k = static_cast<int>(g.k);
  int terms = (k + blocks - 1) / blocks; // of a block
  terms = static_cast<int>((terms + kEach - 1) / kEach * kEach);
  int64_t a_step = g.a_step, b_step = g.b_step, c_step = g.c_step, residual_step = g.residual_step;
  void* pointers[] = {&a, &b, &bias,  &residual, &c,      &alpha,  &m,
                      &n, &k, &terms, &a_step,   &b_step, &c_step, &residual_step};
  device::LaunchShape shape;
  shape.blocks = static_cast<uint32_t>(tiles(g.m) * tiles(g.n) * blocks);
  shape.threads = 128;
  shape.shared_bytes = kSharedBytes;
  stream.launch(kernel, shape, pointers);
}

} // namespace tbx::extern_kernels::cuda
