// Convolutions of one pixel whose weights come from memory in every run: products whose rows are pixels.
#include <fmt/format.h>

#include <algorithm>

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

/// [channels, results], as a product takes them.
OperandInfo matrix_of(const OperandInfo& w) {
  return {w.dtype, {w.sizes[1], w.sizes[0]}, {w.strides[1], w.strides[0]}, w.constant};
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
      : p_(p), call_(matrix_of(w), 1, p.has_bias, p.post_ops) {}

  std::string description() const override { return call_.description(p_); }
  int64_t packed_bytes() const override { return call_.packed_bytes(); }
  bool reads(size_t input) const override { return input != 1; }

  bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const override {
    return Call::is_serial(outputs[0].numel(), inputs[0].sizes[1]);
  }

  void run(const RunArgs& args) const override {
    const TensorRef& y = args.outputs[0];
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
    const TensorRef output = pixels.back().of(y);
    call_.run({inputs, {&output, 1}, args.allocator, args.workspace});
  }

private:
  ConvProblem p_;
  Call call_;
};

} // namespace
} // namespace product

std::string supports_blocked_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                  std::span<const OperandInfo> outputs, const Target& target) {
  const auto& p = std::get<ConvProblem>(problem);
  const OperandInfo& w = inputs[1];
  if (p.transposed || p.group != 1) return "a transposed convolution, or one of groups";
  for (size_t d = 0; d < p.strides.size(); ++d)
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
  if (std::string reason = product::refusal(as_product, outputs[0], 1, target); !reason.empty())
    return reason;
  return product::slower_than_library(p, w, target.l2_bytes);
}

std::unique_ptr<ExternKernel> make_blocked_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                                std::span<const OperandInfo>) {
  return std::make_unique<product::BlockedConv>(std::get<ConvProblem>(problem), inputs[1]);
}

} // namespace tbx::extern_kernels
