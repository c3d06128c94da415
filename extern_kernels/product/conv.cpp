// Convolutions that are products where they lie: those of one pixel whose weights come from memory in every
// run, with pixels as rows, and those of one channel along lines (a short-time Fourier transform, for one),
// with the windows of a line as rows, which overlap.
#include <fmt/format.h>

#include <algorithm>

#include "base/strides.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/product/call.h"

namespace tbx::extern_kernels {
namespace product {
namespace {

/// An image as rows of channels: [images, spatial..., channels].
struct Pixels {
  std::vector<int64_t> sizes, strides;

  /// Those that results of these sizes take, `steps` apart.
  Pixels(const TensorRef& image, std::span<const int64_t> results, std::span<const int64_t> steps)
      : sizes(results.begin(), results.end()), strides(image.strides.begin(), image.strides.end()) {
    for (size_t d = 2; d < strides.size(); ++d) strides[d] *= steps[d - 2];
    sizes[1] = image.sizes[1];
    for (std::vector<int64_t>* v : {&sizes, &strides}) std::rotate(v->begin() + 1, v->begin() + 2, v->end());
  }
  /// One value for each channel, for all pixels.
  Pixels(size_t rank, int64_t channels, int64_t step) : sizes(rank, 1), strides(rank, 0) {
    sizes.back() = channels;
    strides.back() = step;
  }
  TensorRef of(const TensorRef& t) const { return {t.data, t.dtype, sizes, strides}; }
};

/// Elements along a line are a window's; else there is one of each channel.
bool has_windows(const OperandInfo& w) { return w.sizes.back() != 1; }

/// [channels or elements of a window, results], as a product takes them.
OperandInfo matrix_of(const OperandInfo& w) {
  const size_t depth = has_windows(w) ? w.sizes.size() - 1 : 1;
  return {w.dtype, {w.sizes[depth], w.sizes[0]}, {w.strides[depth], w.strides[0]}, w.constant};
}

/// The library's kernel of one pixel has its weights packed, too. It is as fast while its cache holds them,
/// and computes exponentials faster.
std::string slower_than_library(const ConvProblem& p, const OperandInfo& w, int64_t cache) {
  if (w.sizes[0] * w.sizes[1] * static_cast<int64_t>(sizeof(float)) < cache)
    return fmt::format("weights of less than {} KB: a second cache holds the library's, too", cache >> 10);
  for (const PostOp& op : p.post_ops)
    if (!Work({op}).later.empty() && op.operand < 0) return "an activation that the library computes faster";
  return {};
}

class BlockedConv : public ExternKernel {
public:
  BlockedConv(const ConvProblem& p, const OperandInfo& w)
      : p_(p), call_(matrix_of(w), 1, p.has_bias, p.post_ops), window_(has_windows(w) ? w.sizes.back() : 0) {}

  std::string description() const override { return call_.description(p_); }
  int64_t packed_bytes() const override { return call_.packed_bytes(); }
  bool reads(size_t input) const override { return input != 1; }

  bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const override {
    return Call::is_serial(outputs[0].numel(), window_ > 0 ? window_ : inputs[0].sizes[1]);
  }

  int64_t workspace_bytes(std::span<const TensorRef> inputs, std::span<const TensorRef>) const override {
    return pads() ? lines_of(inputs[0]) * padded(inputs[0]) * int64_t{sizeof(float)} : 0;
  }

  void run(const RunArgs& args) const override {
    const TensorRef& y = args.outputs[0];
    if (y.numel() == 0) return;
    const std::vector<int64_t> ones(p_.strides.size(), 1);
    std::vector<Pixels> pixels;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      const TensorRef& t = args.inputs[i];
      if (i == 0)
        pixels.emplace_back(t, y.sizes, p_.strides);
      else if (i == 1 || t.sizes.size() < y.sizes.size()) // its elements lie packed; a bias, or none
        pixels.emplace_back(y.sizes.size(), i > 1 && t.data ? t.sizes[0] : 1,
                            i > 1 && t.data ? t.strides[0] : 0);
      else
        pixels.emplace_back(t, t.sizes, ones);
    }
    pixels.emplace_back(y, y.sizes, ones);
    std::vector<TensorRef> inputs;
    for (size_t i = 0; i < args.inputs.size(); ++i) inputs.push_back(pixels[i].of(args.inputs[i]));
    if (window_ > 0) take_windows(args, pixels[0], inputs[0]);
    const TensorRef output = pixels.back().of(y);
    call_.run({inputs, {&output, 1}, args.allocator, args.workspace});
  }

private:
  bool pads() const { return window_ > 0 && (p_.pads_begin.back() != 0 || p_.pads_end.back() != 0); }
  static int64_t lines_of(const TensorRef& x) { return Stack{x}.count() * Stack{x}.rows(); }
  int64_t padded(const TensorRef& x) const {
    return x.sizes.back() + p_.pads_begin.back() + p_.pads_end.back();
  }

  /// Pixels of an only channel become the windows that begin there, of a padded copy where there are pads.
  void take_windows(const RunArgs& args, Pixels& pixels, TensorRef& rows) const {
    const TensorRef& x = args.inputs[0];
    int64_t step = x.strides.back();
    if (pads()) {
      std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end());
      sizes.back() = padded(x);
      const std::vector<int64_t> strides = row_major_strides(sizes);
      const TensorRef copy{args.workspace, x.dtype, sizes, strides};
      copy_lines(x, copy);
      pixels = Pixels(copy, args.outputs[0].sizes, p_.strides);
      rows.data = copy.data;
      step = 1;
    }
    pixels.sizes.back() = window_;
    pixels.strides.back() = step;
    rows = pixels.of(rows);
  }

  /// Zeros before and behind each line.
  void copy_lines(const TensorRef& x, const TensorRef& to) const {
    const int64_t lines = lines_of(x), length = x.sizes.back(), line = to.sizes.back(),
                  step = x.strides.back();
    const int64_t begin_pad = p_.pads_begin.back(), end_pad = p_.pads_end.back();
    direct::in_pieces(lines, static_cast<double>(lines * line), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* from =
            static_cast<const float*>(x.data) + place_of(i, x.sizes.first(x.sizes.size() - 1), x.strides);
        float* at = std::fill_n(static_cast<float*>(to.data) + i * line, begin_pad, 0.0f);
        for (int64_t j = 0; j < length; ++j) at[j] = from[j * step];
        std::fill_n(at + length, end_pad, 0.0f);
      }
    });
  }

  ConvProblem p_;
  Call call_;
  int64_t window_; ///< elements of a window; 0: pixels
};

/// Convolutions of an only channel along the last dimension. The library makes rows of the windows first, or
/// has few lanes at work.
bool is_along_lines(const ConvProblem& p, const OperandInfo& w) {
  constexpr int64_t kShortest = 16; ///< products of less are mostly stores
  if (w.sizes[1] != 1 || w.sizes.back() < kShortest || p.dilations.back() != 1) return false;
  for (const int64_t pad : {p.pads_begin.back(), p.pads_end.back()}) // wider ones are not worth a copy
    if (pad < 0 || pad >= w.sizes.back()) return false;
  for (size_t d = 0; d + 1 < p.strides.size(); ++d)
    if (w.sizes[d + 2] != 1 || p.pads_begin[d] != 0 || p.pads_end[d] != 0) return false;
  return true;
}

} // namespace
} // namespace product

std::string supports_blocked_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                  std::span<const OperandInfo> outputs, const Target& target) {
  const auto& p = std::get<ConvProblem>(problem);
  const OperandInfo& w = inputs[1];
  if (p.transposed || p.group != 1) return "a transposed convolution, or one of groups";
  const bool lines = product::is_along_lines(p, w);
  for (size_t d = 0; d < p.strides.size() && !lines; ++d)
    if (w.sizes[d + 2] != 1 || p.pads_begin[d] != 0 || p.pads_end[d] != 0)
      return "more than one pixel for each result";
  if (p.x_zero >= 0) return "zero points";
  for (const PostOp& op : p.post_ops)
    if (op.operand >= 0 && inputs[op.operand].sizes.size() != w.sizes.size())
      return "an operand of another rank";
  if (!w.constant || w.strides.size() != w.sizes.size())
    return "weights that change, or lie in no known order";
  std::vector<OperandInfo> as_product(inputs.begin(), inputs.end());
  as_product[1] = product::matrix_of(w);
  if (lines) return product::operands_refusal(as_product, outputs[0]);
  if (std::string reason = product::refusal(as_product, outputs[0], 1, target); !reason.empty())
    return reason;
  return product::slower_than_library(p, w, target.l2_bytes);
}

std::unique_ptr<ExternKernel> make_blocked_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                                std::span<const OperandInfo>) {
  return std::make_unique<product::BlockedConv>(std::get<ConvProblem>(problem), inputs[1]);
}

} // namespace tbx::extern_kernels
