// Convolutions by oneDNN: activations as they lie (channels last), weights packed once.
#include <fmt/format.h>

#include "base/error.h"
#include "extern_kernels/onednn/common.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels {
namespace {

using dnnl::memory;
using namespace onednn;

/// Images: where sizes of 1 leave it open how they lie, channels are last. oneDNN has plain loops only for
/// orders that differ between source and destination.
memory::desc describe_image(const TensorRef& t) {
  std::vector<int64_t> last(t.sizes.size());
  int64_t step = 1;
  auto place = [&](size_t d) {
    last[d] = step;
    step *= t.sizes[d];
  };
  place(1);
  for (size_t d = t.sizes.size() - 1; d > 1; --d) place(d);
  place(0);
  for (size_t d = 0; d < last.size(); ++d)
    if (t.sizes[d] != 1 && t.strides[d] != last[d]) return describe(t.sizes, t.strides, t.dtype);
  return memory::desc({t.sizes.begin(), t.sizes.end()}, data_type(t.dtype), last);
}

class OneDnnConv : public ExternKernel {
public:
  OneDnnConv(const ConvProblem& problem, const OperandInfo& weights) : p_(problem) {
    if (weights.constant)
      packed_ = std::make_unique<PackedWeights>(weight_desc(weights.sizes, weights.strides, weights.dtype),
                                                weights.constant);
  }

  std::string description() const override { return "oneDNN " + extern_kernels::to_string(Problem(p_)); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (is_empty(outputs[0])) return 0;
    return prepared(inputs, outputs)->scratchpad_bytes();
  }

  void run(const RunArgs& args) const override {
    if (is_empty(args.outputs[0])) return;
    guarded("convolution", [&] { prepared(args.inputs, args.outputs)->execute(args); });
  }

  int64_t packed_bytes() const override { return packed_ ? packed_->bytes() : 0; }

private:
  static bool is_empty(const TensorRef& t) { return t.numel() == 0; }

  /// Grouped weights get a leading dimension for the group; transposed ones have input channels first in
  /// ONNX.
  memory::desc weight_desc(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                           DType type) const {
    std::vector<int64_t> s(sizes.begin(), sizes.end()), t(strides.begin(), strides.end());
    int64_t g = p_.group;
    if (g > 1) {
      s.insert(s.begin(), g);
      s[1] /= g;
      t.insert(t.begin(), t[0] * s[1]);
    }
    if (p_.transposed) {
      size_t first = g > 1 ? 1 : 0;
      std::swap(s[first], s[first + 1]);
      std::swap(t[first], t[first + 1]);
    }
    return memory::desc(s, data_type(type), t);
  }

  std::shared_ptr<Prepared> prepared(std::span<const TensorRef> inputs,
                                     std::span<const TensorRef> outputs) const {
    return cache_.get(inputs, outputs, [&] { return make(inputs, outputs); });
  }

  std::shared_ptr<Prepared> make(std::span<const TensorRef> in, std::span<const TensorRef> out) const {
    return guarded("convolution", [&] {
      std::shared_ptr<Prepared> first = make(in, out, -1);
      if (!first->is_reference()) return first;
      // oneDNN has fast kernels of few channels for a sum with what lies in the destination, not for an
      // operand.
      const int sum = operand_to_sum(in, out);
      if (sum < 0) return first;
      std::shared_ptr<Prepared> second = make(in, out, sum);
      return second->is_reference() ? first : second;
    });
  }

  /// The only addition among the post-operations, of an operand like the result; -1: there is none such.
  int operand_to_sum(std::span<const TensorRef> in, std::span<const TensorRef> out) const {
    int found = -1;
    for (const PostOp& op : p_.post_ops) {
      if (op.kind == PostOp::sum) return -1;
      if (op.kind != PostOp::add) continue;
      if (found >= 0) return -1;
      found = op.operand;
    }
    if (found < 0 || p_.transposed) return -1;
    const TensorRef &x = in[found], &y = out[0];
    const bool alike = x.dtype == DType::f32 && y.dtype == DType::f32 &&
                       std::equal(x.sizes.begin(), x.sizes.end(), y.sizes.begin(), y.sizes.end());
    return alike ? found : -1;
  }

  /// `summed`: the input that is copied into the destination first, -1: none.
  std::shared_ptr<Prepared> make(std::span<const TensorRef> in, std::span<const TensorRef> out,
                                 int summed) const {
    memory::desc src = describe_image(in[0]), dst = describe_image(out[0]);
    memory::desc plain = weight_desc(in[1].sizes, in[1].strides, in[1].dtype);
    memory::desc weights(plain.get_dims(), plain.get_data_type(), memory::format_tag::any);
    memory::desc bias = p_.has_bias ? describe(in[2].sizes, in[2].strides) : memory::desc();
    memory::dims strides(p_.strides.begin(), p_.strides.end()), dilations, pads_l(p_.pads_begin),
        pads_r(p_.pads_end);
    for (int64_t d : p_.dilations) dilations.push_back(d - 1);
    dnnl::primitive_attr attr = attributes(p_.precision);
    std::vector<Prepared::Argument> args;
    dnnl::post_ops ops;
    append_all(p_.post_ops, out[0].dtype, [&](const PostOp& op) {
      if (summed >= 0 && op.kind == PostOp::add) return ops.append_sum(1.0f);
      auto operand = [&](int k) { return describe(in[k].sizes, in[k].strides); };
      append(ops, op, operand);
      if (op.operand >= 0 && op.kind != PostOp::sum) // a sum's operand is the destination
        args.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len() - 1) | DNNL_ARG_SRC_1, operand(op.operand),
                        op.operand});
    });
    attr.set_post_ops(ops);
    if (p_.x_zero >= 0) {
      attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
      args.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, one_integer(), p_.x_zero});
    }
    auto finish = [&](const auto& pd, dnnl::primitive primitive) {
      std::vector<memory> owned;
      args.push_back({DNNL_ARG_SRC, src, 0});
      if (packed_) {
        owned.push_back(packed_->get(pd.weights_desc()));
        args.push_back({DNNL_ARG_WEIGHTS, pd.weights_desc(), -1, -1, owned.back().get_data_handle()});
      } else if (pd.weights_desc() == plain) {
        args.push_back({DNNL_ARG_WEIGHTS, plain, 1});
      } else {
        args.push_back({DNNL_ARG_WEIGHTS, pd.weights_desc(), 1, -1, nullptr, plain});
      }
      if (p_.has_bias) args.push_back({DNNL_ARG_BIAS, bias, 2});
      args.push_back({DNNL_ARG_DST, dst, -1, 0});
      if (pd.scratchpad_desc().get_size()) args.push_back({DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()});
      auto result = std::make_shared<Prepared>(std::move(primitive), std::move(args),
                                               pd.scratchpad_desc().get_size(), std::move(owned));
      result->set_reference(std::string_view(pd.impl_info_str()).substr(0, 3) == "ref");
      if (summed >= 0) result->copy_first(summed, describe(in[summed].sizes, in[summed].strides), dst);
      return result;
    };
    if (p_.transposed) {
      dnnl::deconvolution_forward::primitive_desc pd(cpu_engine(), dnnl::prop_kind::forward_inference,
                                                     dnnl::algorithm::deconvolution_direct, src, weights,
                                                     bias, dst, strides, dilations, pads_l, pads_r, attr);
      return finish(pd, dnnl::deconvolution_forward(pd));
    }
    dnnl::convolution_forward::primitive_desc pd(cpu_engine(), dnnl::prop_kind::forward_inference,
                                                 dnnl::algorithm::convolution_direct, src, weights, bias, dst,
                                                 strides, dilations, pads_l, pads_r, attr);
    return finish(pd, dnnl::convolution_forward(pd));
  }

  ConvProblem p_;
  std::unique_ptr<PackedWeights> packed_;
  mutable PreparedCache cache_;
};

} // namespace

std::string supports_onednn_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs) {
  const auto& p = std::get<ConvProblem>(problem);
  const bool bytes = is_byte(inputs[0].dtype) && inputs[1].dtype == DType::i8;
  if (bytes) {
    if (std::string reason = inexact_bytes(); !reason.empty()) return reason;
    if (p.has_bias || p.transposed) return "a bias or a transposed convolution of integers";
    if (!inputs[1].constant) return "integer weights that change";
  }
  for (size_t k = 0; k < inputs.size(); ++k) {
    const DType type = inputs[k].dtype;
    const bool fits = (bytes && k < 2) || (static_cast<int>(k) == p.x_zero && type == DType::i32) ||
                      (k == 1 && inputs[1].constant && is_half(type));
    if (!fits && type != DType::f32 && type != DType::undefined)
      return fmt::format("{} operands", name_of(type));
  }
  if (std::string reason = unfit_result(bytes, outputs[0].dtype, !p.post_ops.empty()); !reason.empty())
    return reason;
  if (p.spatial_rank < 1 || p.spatial_rank > 3) return fmt::format("{} spatial dimensions", p.spatial_rank);
  for (size_t k = 0; k < p.pads_begin.size(); ++k)
    if (p.pads_begin[k] < 0 || (p.pads_end[k] < 0 && !p.transposed)) return "negative padding";
  if (inputs[1].constant && inputs[1].strides.empty()) return "weights without known strides";
  return {};
}

std::unique_ptr<ExternKernel> make_onednn_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo>) {
  return std::make_unique<OneDnnConv>(std::get<ConvProblem>(problem), inputs[1]);
}

} // namespace tbx::extern_kernels
