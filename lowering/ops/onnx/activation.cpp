// Activations, in forms that do not overflow where the result does not.
#include <limits>
#include <numeric>

#include "ir/activations.h"
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

const char* const kMicrosoft = "com.microsoft";

Expr less_zero(Expr x) { return ir::binary(Op::less, x, number(x, 0)); }

/// An activation of one attribute, `alpha`.
LowerFn with_alpha(float otherwise, Expr (*body)(Expr, double)) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    double alpha = ctx.attr_float("alpha", otherwise);
    return {map(ctx, ctx.dtype(0), ctx.in(0), [&](Expr x) { return body(x, alpha); })};
  };
}

Expr celu(Expr x, double alpha) {
  Expr a = number(x, alpha); // no min and max: they would put a kink where there is none
  return ir::where(less_zero(x), ir::mul(a, ir::unary(Op::expm1, ir::div(x, a))), x);
}

Expr thresholded_relu(Expr x, double alpha) {
  return ir::where(ir::binary(Op::greater, x, number(x, alpha)), x, number(x, 0));
}

Expr mish(Expr x) { return ir::mul(x, ir::unary(Op::tanh, ir::unary(Op::softplus, x))); }
Expr softsign(Expr x) { return ir::div(x, ir::add(number(x, 1), ir::unary(Op::abs, x))); }

std::vector<LoweredValue> lower_selu(OpContext& ctx) {
  bool old = ctx.opset() < 6;
  double alpha = ctx.attr_float("alpha", old ? 1.6732f : 1.67326319217681884765625f);
  double gamma = ctx.attr_float("gamma", old ? 1.0507f : 1.05070102214813232421875f);
  return {map(ctx, ctx.dtype(0), ctx.in(0),
              [&](Expr x) { return ir::mul(number(x, gamma), ir::elu(x, alpha)); })};
}

std::vector<LoweredValue> lower_hard_sigmoid(OpContext& ctx) {
  double alpha = ctx.attr_float("alpha", 0.2f), beta = ctx.attr_float("beta", 0.5f);
  return {map(ctx, ctx.dtype(0), ctx.in(0), [&](Expr x) { return ir::hard_sigmoid(x, alpha, beta); })};
}

std::vector<LoweredValue> lower_gelu(OpContext& ctx) {
  std::string how = ctx.attr_string("approximate", "none");
  TBX_MODEL(how == "none" || how == "tanh", "approximate is '{}', not none or tanh", how);
  return {map(ctx, ctx.dtype(0), ctx.in(0), how == "tanh" ? ir::gelu_tanh : ir::gelu_erf)};
}

/// x + bias through an activation.
LowerFn biased(Expr (*body)(Expr), bool needs_bias) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    if (!needs_bias && !ctx.has(1)) return {map(ctx, ctx.dtype(0), ctx.in(0), body)};
    return {
        map(ctx, ctx.dtype(0), ctx.in(0), ctx.in(1), [&](Expr x, Expr b) { return body(ir::add(x, b)); })};
  };
}

/// The slope of opsets 1 to 6 is one number or one per channel; later it broadcasts to the input.
std::vector<LoweredValue> lower_prelu(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TensorBox slope = ctx.in(1);
  TBX_MODEL(slope.dtype() == x.dtype(), "slope is of type {}", name_of(slope.dtype()));
  if (ctx.opset() < 7 && slope.rank() == 1 && x.rank() >= 2 && !slope.sizes()[0].is(1))
    slope = per_channel(ctx, slope, x.rank());
  TBX_MODEL(slope.rank() <= x.rank(), "slope of rank {} for an input of rank {}", slope.rank(), x.rank());
  return {map(ctx, x.dtype(), x, slope,
              [](Expr v, Expr s) { return ir::where(less_zero(v), ir::mul(v, s), v); })};
}

std::vector<LoweredValue> lower_shrink(OpContext& ctx) {
  double lambda = ctx.attr_float("lambd", 0.5f), bias = ctx.attr_float("bias", 0);
  return {map(ctx, ctx.dtype(0), ctx.in(0), [&](Expr x) {
    Expr v = is_float(x->dtype) ? x : to_compute(x, DType::f64);
    Expr above =
        ir::where(ir::binary(Op::greater, v, number(v, lambda)), ir::sub(v, number(v, bias)), number(v, 0));
    Expr out = ir::where(ir::binary(Op::less, v, number(v, -lambda)), ir::add(v, number(v, bias)), above);
    return to_compute(out, x->dtype);
  })};
}

/// Bounds are attributes before opset 11, optional scalar inputs later. min above max gives max.
std::vector<LoweredValue> lower_clip(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  if (ctx.opset() < 11) {
    return {map(ctx, x.dtype(), x, [&](Expr e) {
      if (ctx.has_attr("min")) e = ir::binary(Op::max, e, number(e, ctx.attr_float("min", 0)));
      if (ctx.has_attr("max")) e = ir::binary(Op::min, e, number(e, ctx.attr_float("max", 0)));
      return e;
    })};
  }
  TensorBox out = x;
  for (int i : {1, 2}) {
    if (!ctx.has(i)) continue;
    TensorBox bound = ctx.in(i);
    TBX_MODEL(bound.dtype() == x.dtype(), "bound {} is of type {}", i, name_of(bound.dtype()));
    if (bound.rank() > 0) bound = ir::reshape(ctx.program, bound, {});
    out = map(ctx, x.dtype(), out, bound,
              [&](Expr e, Expr b) { return ir::binary(i == 1 ? Op::max : Op::min, e, b); });
  }
  return {out};
}

std::vector<LoweredValue> lower_swiglu(OpContext& ctx) {
  double alpha = ctx.attr_float("alpha", 1);
  return {map(ctx, ctx.dtype(0), ctx.in(0), ctx.in(1),
              [&](Expr a, Expr b) { return ir::mul(rounded(ir::silu(a, alpha), ctx.dtype(0)), b); })};
}

/// (x + bias) split in halves along the last axis: left * gelu(right).
std::vector<LoweredValue> lower_bias_split_gelu(OpContext& ctx) {
  TensorBox x = map(ctx, ctx.dtype(0), ctx.in(0), ctx.in(1), ir::add);
  TBX_MODEL(x.rank() > 0, "X and bias are scalars");
  int axis = x.rank() - 1;
  SymInt half = ir::floordiv(x.sizes()[axis], 2);
  TensorBox left = ir::slice(ctx.program, x, axis, 0, 1, half),
            right = ir::slice(ctx.program, x, axis, half, 1, half);
  return {map(ctx, x.dtype(), left, right, [](Expr a, Expr b) { return ir::mul(a, ir::gelu_erf(b)); })};
}

std::vector<LoweredValue> lower_bias_add(OpContext& ctx) {
  const TensorBox xs[] = {ctx.in(0), ctx.in(1), ctx.in(2)};
  return {
      map(ctx, ctx.dtype(0), xs, [](std::span<const Expr> v) { return ir::add(ir::add(v[0], v[1]), v[2]); })};
}

Expr silu_of(Expr x, double alpha) { return ir::silu(x, alpha); }

} // namespace

void register_activation(Registry& r) {
  r.add("Relu", since(1), pointwise(ir::relu));
  r.add("LeakyRelu", since(1), with_alpha(0.01f, ir::leaky_relu));
  r.add("PRelu", since(1), lower_prelu);
  r.add("Elu", since(1), with_alpha(1, ir::elu));
  r.add("Selu", since(1), lower_selu);
  r.add("Celu", since(12), with_alpha(1, celu));
  r.add("Gelu", since(20), lower_gelu);
  r.add("Mish", since(18), pointwise(mish));
  r.add("Swish", since(24), with_alpha(1, silu_of));
  r.add("SwiGLU", since(28), lower_swiglu);
  r.add("Sigmoid", since(1), pointwise(Op::sigmoid));
  r.add("HardSigmoid", since(1), lower_hard_sigmoid);
  r.add("HardSwish", since(14), pointwise(ir::hard_swish));
  r.add("Softplus", since(1), pointwise(Op::softplus));
  r.add("Softsign", since(1), pointwise(softsign));
  r.add("Shrink", since(9), lower_shrink);
  r.add("ThresholdedRelu", since(10), with_alpha(1, thresholded_relu));
  r.add("Clip", since(1), lower_clip);

  r.add("Gelu", since(1), pointwise(ir::gelu_erf), kMicrosoft);
  r.add("BiasGelu", since(1), biased(ir::gelu_erf, true), kMicrosoft);
  r.add("FastGelu", since(1), biased(ir::gelu_tanh, false), kMicrosoft);
  r.add("QuickGelu", since(1), with_alpha(1.702f, silu_of), kMicrosoft);
  r.add("BiasAdd", since(1), lower_bias_add, kMicrosoft);
  r.add("BiasSplitGelu", since(1), lower_bias_split_gelu, kMicrosoft);
  r.narrow(Narrow::follows,
           {"Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "Mish", "Swish", "SwiGLU", "Sigmoid",
            "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Shrink", "ThresholdedRelu", "Clip"});
  r.narrow(Narrow::follows, {"Gelu", "BiasGelu", "FastGelu", "QuickGelu", "BiasAdd", "BiasSplitGelu"},
           kMicrosoft);
  r.mark(Trait::elementwise,
         {"Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu",
          "Selu", "Sigmoid", "Softplus", "Softsign", "Swish", "ThresholdedRelu"});
  r.mark(Trait::keeps_first, {"Clip"});
  r.mark(Trait::half_follows, {"Sigmoid", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu",
                               "Swish", "Mish", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Clip"});
  r.type_from(0, {"BiasGelu", "FastGelu", "Gelu", "QuickGelu", "BiasAdd", "BiasSplitGelu"}, kMicrosoft);
}

} // namespace tbx::lowering
