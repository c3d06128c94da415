// com.microsoft products and convolutions with an activation, a sum or another layout: what ONNX Runtime's
// optimiser makes of plain operators goes back to these, and fusion decides anew.
#include <limits>
#include <optional>

#include "ir/activations.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"
#include "lowering/ops/window.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

const char* const kMicrosoft = "com.microsoft";

/// Parameters of an activation in the order alpha, beta, gamma; those not given have the operator's default.
struct Parameters {
  std::vector<std::optional<float>> given;
  double operator()(size_t k, double otherwise) const {
    return k < given.size() && given[k] ? *given[k] : otherwise;
  }
};

/// The activation called `name` on one value.
Expr activated(const std::string& name, const Parameters& p, Expr x) {
  auto n = [&](double v) { return number(x, v); };
  if (name == "Relu") return ir::relu(x);
  if (name == "Sigmoid") return ir::unary(Op::sigmoid, x);
  if (name == "Tanh") return ir::unary(Op::tanh, x);
  if (name == "LeakyRelu") return ir::leaky_relu(x, p(0, 0.01f));
  if (name == "Elu") return ir::elu(x, p(0, 1));
  if (name == "HardSigmoid") return ir::hard_sigmoid(x, p(0, 0.2f), p(1, 0.5f));
  if (name == "HardSwish") return ir::hard_swish(x);
  if (name == "Softplus") return ir::unary(Op::softplus, x);
  if (name == "Softsign") return ir::div(x, ir::add(n(1), ir::unary(Op::abs, x)));
  if (name == "Gelu") return ir::gelu_erf(x);
  if (name == "FastGelu") return ir::gelu_tanh(x);
  if (name == "QuickGelu" || name == "Silu") return ir::silu(x, p(0, name == "Silu" ? 1 : 1.702f));
  if (name == "ScaledTanh") return ir::mul(n(p(0, 1)), ir::unary(Op::tanh, ir::mul(n(p(1, 1)), x)));
  if (name == "ParametricSoftplus")
    return ir::mul(n(p(0, 1)), ir::unary(Op::softplus, ir::mul(n(p(1, 1)), x)));
  if (name == "ThresholdedRelu") return ir::where(ir::binary(Op::greater, x, n(p(0, 1))), x, n(0));
  if (name == "Selu")
    return ir::mul(n(p(2, p(1, 1.05070102214813232421875f))), ir::elu(x, p(0, 1.67326319217681884765625f)));
  if (name == "Clip") {
    constexpr double kLargest = std::numeric_limits<float>::max();
    return ir::binary(Op::min, ir::binary(Op::max, x, n(p(0, -kLargest))), n(p(1, kLargest)));
  }
  throw_unsupported("activation '{}'", name);
}

/// `y` through attribute `activation`; itself where there is none.
TensorBox with_activation(OpContext& ctx, const TensorBox& y, const Parameters& p) {
  std::string name = ctx.attr_string("activation", "");
  if (name.empty() || name == "Identity") return y;
  return map(ctx, y.dtype(), y, [&](Expr e) { return activated(name, p, e); });
}

/// activation_alpha, activation_beta, activation_gamma.
Parameters named_parameters(OpContext& ctx) {
  Parameters p;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
    p.given.push_back(ctx.has_attr(name) ? std::optional(ctx.attr_float(name, 0)) : std::nullopt);
  return p;
}

} // namespace

TensorBox activated_conv(OpContext& ctx, LoweredValue x, LoweredValue w, const TensorBox& z) {
  Values inputs = {std::move(x), std::move(w)};
  if (ctx.has(2)) inputs.push_back(ctx.value(2));
  TensorBox y = ctx.box(lower_as(ctx, "Conv", 11, std::move(inputs), ctx.node.attributes)[0]);
  if (z.defined()) y = map(ctx, y.dtype(), y, z, ir::add);
  Parameters p;
  for (float v : ctx.attr_floats("activation_params")) p.given.emplace_back(v);
  return with_activation(ctx, y, p);
}

namespace {

/// Where channels lie: in all tensors behind the batch, at the end except in weights, or at the end in those
/// too.
enum class Channels { first, last, last_in_weights };

/// activation(Conv(X, W, B) + Z); X, Z and Y are [N, spatial..., C] where channels are last.
LowerFn fused_conv(Channels channels) {
  return [channels](OpContext& ctx) -> Values {
    for (int i : {0, 1}) TBX_MODEL(ctx.has(i), "input {} is missing", i);
    if (channels == Channels::first)
      return {activated_conv(ctx, ctx.value(0), ctx.value(1), ctx.has(3) ? ctx.in(3) : TensorBox())};
    TensorBox z = ctx.has(3) ? channels_first(ctx, ctx.in(3)) : TensorBox();
    // [M, spatial..., C / group], as ONNX Runtime's optimizer turns them.
    LoweredValue w =
        channels == Channels::last_in_weights ? LoweredValue(channels_first(ctx, ctx.in(1))) : ctx.value(1);
    return {channels_last(ctx, activated_conv(ctx, channels_first(ctx, ctx.in(0)), std::move(w), z))};
  };
}

Values fused_gemm(OpContext& ctx) {
  Values inputs;
  for (int i : {0, 1}) TBX_MODEL(ctx.has(i), "input {} is missing", i);
  for (int i = 0; i < ctx.num_inputs(); ++i) inputs.push_back(ctx.value(i));
  TensorBox y = ctx.box(lower_as(ctx, "Gemm", 11, std::move(inputs), ctx.node.attributes)[0]);
  return {with_activation(ctx, y, named_parameters(ctx))};
}

/// Activations along an axis are operators of their own.
Values fused_matmul_activation(OpContext& ctx) {
  Values y = Registry::instance().find(kMicrosoft, "FusedMatMul", 1)->lower(ctx);
  std::string name = ctx.attr_string("activation", "");
  TBX_MODEL(!name.empty(), "attribute 'activation' is missing");
  if (name == "Softmax" || name == "LogSoftmax" || name == "Hardmax")
    return lower_as(ctx, name, 13, {y[0]}, {{"axis", ctx.attr_int("activation_axis", -1)}});
  return {with_activation(ctx, ctx.box(y[0]), named_parameters(ctx))};
}

Values gemm_fast_gelu(OpContext& ctx) {
  for (int i : {0, 1}) TBX_MODEL(ctx.has(i), "input {} is missing", i);
  TensorBox y = ctx.box(lower_as(ctx, "MatMul", 13, {ctx.value(0), ctx.value(1)}, {})[0]);
  if (ctx.has(2)) y = map(ctx, y.dtype(), y, ctx.in(2), ir::add);
  return {map(ctx, y.dtype(), y, ir::gelu_tanh)};
}

/// The padding is an input: begins of all spatial dimensions, then ends.
Values conv_transpose_with_dynamic_pads(OpContext& ctx) {
  for (int i : {0, 1}) TBX_MODEL(ctx.has(i), "input {} is missing", i);
  auto attributes = ctx.node.attributes;
  if (ctx.has(2)) attributes["pads"] = ctx.ints_or_throw(2, "Pads");
  Values inputs = {ctx.value(0), ctx.value(1)};
  if (ctx.has(3)) inputs.push_back(ctx.value(3));
  return lower_as(ctx, "ConvTranspose", 11, std::move(inputs), std::move(attributes));
}

/// softmax(data + bias) over all dimensions from `axis` on.
Values bias_softmax(OpContext& ctx) {
  TensorBox sum = map(ctx, ctx.dtype(0), ctx.in(0), ctx.in(1), ir::add);
  TBX_MODEL(sum.rank() == ctx.rank(0), "bias has rank {}, data has rank {}", ctx.rank(1), ctx.rank(0));
  return lower_as(ctx, "Softmax", 11, {sum}, {{"axis", ctx.attr_int("axis", 1)}});
}

/// Dropout(data + bias) + residual
Values bias_dropout(OpContext& ctx) {
  Values inputs = {map(ctx, ctx.dtype(0), ctx.in(0), ctx.in(1), ir::add)};
  for (int i : {3, 4}) inputs.push_back(ctx.has(i) ? ctx.value(i) : LoweredValue());
  Values y = lower_as(ctx, "Dropout", 13, std::move(inputs), ctx.node.attributes);
  if (ctx.has(2)) y[0] = map(ctx, ctx.dtype(0), ctx.box(y[0]), ctx.in(2), ir::add);
  return y;
}

} // namespace

void register_fused(Registry& r) {
  r.add("FusedConv", since(1), fused_conv(Channels::first), kMicrosoft);
  r.add("NhwcConv", since(1), fused_conv(Channels::last_in_weights), kMicrosoft);
  r.add("NhwcFusedConv", since(1), fused_conv(Channels::last), kMicrosoft);
  r.add("FusedGemm", since(1), fused_gemm, kMicrosoft);
  r.add("FusedMatMulActivation", since(1), fused_matmul_activation, kMicrosoft);
  r.add("GemmFastGelu", since(1), gemm_fast_gelu, kMicrosoft);
  r.add("ConvTransposeWithDynamicPads", since(1), conv_transpose_with_dynamic_pads, kMicrosoft);
  r.add("BiasSoftmax", since(1), bias_softmax, kMicrosoft);
  r.add("BiasDropout", since(1), bias_dropout, kMicrosoft);
  r.mark(Trait::random, {"BiasDropout"}, kMicrosoft);
  r.type_from(0,
              {"GemmFastGelu", "BiasSoftmax", "BiasDropout", "FusedGemm", "FusedConv", "NhwcConv",
               "NhwcFusedConv", "FusedMatMulActivation", "ConvTransposeWithDynamicPads"},
              kMicrosoft);
}

} // namespace tbx::lowering
