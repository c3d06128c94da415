#include "extern_kernels/cuda/gathered_conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "extern_kernels/cuda/conv_weights.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels::cuda {

namespace {

const char* const kText =
#include "extern_kernels/cuda/gathered_conv.inc"
    ;

constexpr int64_t kMostRowBytes = 32 << 20; ///< larger ones have results for all of a GPU
constexpr int64_t kVector = 4;

/// The parameter of the text.
struct Arguments {
  const void* x = nullptr;
  void* rows = nullptr;
  int64_t x_steps[3] = {};
  int count = 0;
  int channels = 0, kernel_h = 1, kernel_w = 1, rows_out = 1, columns_out = 0, in_rows = 1, in_columns = 0;
  int stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, pad_h = 0, pad_w = 0;
};

} // namespace

GatheredConv::GatheredConv(device::Device& device, const ConvProblem& p, Load load)
    : p_(p), load_(std::move(load)) {
  if (!load_) load_ = [&device](const std::string& text) { return loaded(device, text); };
}

std::optional<GatheredConv::Call> GatheredConv::call(const TensorRef& x,
                                                     std::span<const int64_t> weight_sizes,
                                                     std::span<const int64_t> weights, const TensorRef& y,
                                                     const Epilogue& e, const TensorRef* residual) const {
  const bool is_strict = x.dtype == DType::f32 && p_.precision != Precision::any;
  if (!is_strict || p_.transposed || p_.group != 1 || p_.spatial_rank > 2) return std::nullopt;
  if (x.sizes[1] > 1 && x.strides[1] != 1) return std::nullopt;
  if (!is_rows(y.sizes, y.strides) || !is_rows(weight_sizes, weights)) return std::nullopt;
  if (residual && !is_rows(residual->sizes, residual->strides)) return std::nullopt;
  Call c;
  Gemm& g = c.gemm;
  g.m = y.numel() / y.sizes[1], g.n = y.sizes[1], g.k = x.sizes[1];
  for (int64_t taps : weight_sizes.subspan(2)) g.k *= taps;
  constexpr int64_t kAlign = 256; // of what lies behind them
  c.row_bytes = (g.m * g.k * size_of(DType::f32) + kAlign - 1) / kAlign * kAlign;
  if (g.k == x.sizes[1] || g.m == 0 || g.k == 0 || c.row_bytes > kMostRowBytes) return std::nullopt;
  g.a_step = g.b_step = g.k;
  g.b_columns = true;
  g.c_step = g.n;
  g.bias = e.bias >= 0, g.activation = e.activation;
  g.residual = residual != nullptr;
  g.residual_step = residual ? g.n : 0;
  return c;
}

void GatheredConv::gather(device::Stream& stream, const TensorRef& x, std::span<const int64_t> weight_sizes,
                          const TensorRef& y, void* rows) const {
  const bool flat = x.sizes.size() == 3;
  auto is_whole = [](int64_t n) { return n % kVector == 0; };
  const bool vectors = is_whole(x.sizes[1]) && reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
                       is_whole(x.strides[0]) && is_whole(x.strides.back()) &&
                       (flat || is_whole(x.strides[2]));
  Arguments a;
  a.x = x.data, a.rows = rows;
  a.x_steps[0] = x.strides[0], a.x_steps[1] = flat ? 0 : x.strides[2], a.x_steps[2] = x.strides.back();
  auto set = [](int& to, int64_t n) { to = static_cast<int>(n); }; // all of them below the bound of the rows
  set(a.channels, x.sizes[1]);
  set(a.kernel_w, weight_sizes.back());
  set(a.columns_out, y.sizes.back());
  set(a.in_columns, x.sizes.back());
  set(a.stride_w, p_.strides.back()), set(a.dilation_w, p_.dilations.back());
  set(a.pad_w, p_.pads_begin.back());
  if (!flat) {
    set(a.kernel_h, weight_sizes[2]);
    set(a.rows_out, y.sizes[2]);
    set(a.in_rows, x.sizes[2]);
    set(a.stride_h, p_.strides[0]), set(a.dilation_h, p_.dilations[0]);
    set(a.pad_h, p_.pads_begin[0]);
  }
  const int64_t each = vectors ? kVector : 1;
  set(a.count, y.numel() / y.sizes[1] * a.channels * a.kernel_h * a.kernel_w / each);
  device::Kernel kernel;
  {
    std::scoped_lock lock(mutex_);
    std::shared_ptr<device::Module>& module = modules_[vectors];
    if (!module) module = load_(fmt::format("#define VECTOR {}\n{}", each, kText));
    kernel = module->kernel("gather_windows");
  }
  constexpr int kThreads = 256;
  device::LaunchShape shape;
  shape.threads = kThreads;
  shape.blocks = static_cast<uint32_t>((a.count + kThreads - 1) / kThreads);
  void* pointers[] = {&a};
  stream.launch(kernel, shape, pointers);
}

} // namespace tbx::extern_kernels::cuda
