// Operators of before 2018 that ONNX names as experimental and has no schema for; files converted from Caffe2
// and Core ML still hold them. Meaning: the onnx documentation of version 1.2, and ONNX Runtime's kernels.
#include <algorithm>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// One expression of the input, alpha and beta.
LowerFn pointwise(Expr (*body)(Expr x, Expr alpha, Expr beta), float alpha, float beta) {
  return [=](OpContext& ctx) -> Values {
    const double a = ctx.attr_float("alpha", alpha), b = ctx.attr_float("beta", beta);
    return {map(ctx, ctx.dtype(0), ctx.in(0), [&](Expr x) { return body(x, number(x, a), number(x, b)); })};
  };
}

Expr affine(Expr x, Expr alpha, Expr beta) { return ir::add(ir::mul(alpha, x), beta); }
Expr parametric_softplus(Expr x, Expr alpha, Expr beta) {
  return ir::mul(alpha, ir::unary(Op::softplus, ir::mul(beta, x)));
}
Expr scaled_tanh(Expr x, Expr alpha, Expr beta) {
  return ir::mul(alpha, ir::unary(Op::tanh, ir::mul(beta, x)));
}

Values scale(OpContext& ctx) {
  const double factor = ctx.attr_float("scale", 1);
  return {map(ctx, ctx.dtype(0), ctx.in(0), [&](Expr x) { return ir::mul(x, number(x, factor)); })};
}

/// x * scale + bias[channel]; x is [N, C, H, W].
Values image_scaler(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() == 4, "an image has rank {}, expected 4", x.rank());
  const double factor = ctx.attr_float("scale", 1);
  const std::vector<float> values = ctx.attr_floats("bias");
  const SymInt channels = x.sizes()[1];
  require_broadcast(ctx, static_cast<int64_t>(values.size()), channels, "attribute 'bias'");
  Tensor bias = Tensor::make(DType::f32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), bias.as_mutable<float>().begin());
  TensorBox b = convert(ctx, ir::make_constant(ctx.program, std::move(bias)), x.dtype());
  return {map(ctx, x.dtype(), x, per_channel(ctx, b, 4),
              [&](Expr e, Expr add) { return ir::add(ir::mul(e, number(e, factor)), add); })};
}

/// Cuts `border` [left, top, right, bottom] off the last two axes, or `scale` [height, width] from its
/// corner.
Values crop(OpContext& ctx) {
  TensorBox x = ctx.in(0);
  TBX_MODEL(x.rank() == 4, "an image has rank {}, expected 4", x.rank());
  const auto border = ctx.attr_ints("border"), size = ctx.attr_ints("scale");
  TBX_MODEL(border.size() == 4, "attribute 'border' has {} numbers, expected 4", border.size());
  TBX_MODEL(size.empty() || size.size() == 2, "attribute 'scale' has {} numbers, expected 2", size.size());
  for (int axis : {2, 3}) {
    const int64_t first = border[axis == 2 ? 1 : 0], last = border[axis == 2 ? 3 : 2];
    TBX_MODEL(first >= 0 && last >= 0, "a border is negative");
    SymInt all = x.sizes()[axis];
    SymInt length = size.empty() ? all - first - last : SymInt(size[axis - 2]);
    ctx.program.add_check(ir::min(length, all - first - length), false,
                          fmt::format("axis {} of size {} is cut to {} from {} on", axis, ir::to_string(all),
                                      ir::to_string(length), first));
    x = ir::slice(ctx.program, x, axis, first, 1, length);
  }
  return {x};
}

/// The shape that a filling operator makes: the input's values, its shape or attribute 'shape', and then
/// 'extra_shape'.
SymInts filled_shape(OpContext& ctx) {
  SymInts sizes;
  if (!ctx.has(0)) {
    const auto given = ctx.attr_ints("shape");
    sizes.assign(given.begin(), given.end());
  } else {
    sizes = ctx.attr_int("input_as_shape", 0) ? ctx.known_or_throw(0, "shape") : ctx.sizes(0);
  }
  for (int64_t extra : ctx.attr_ints("extra_shape")) sizes.push_back(extra);
  for (SymInt s : sizes)
    TBX_MODEL(!s.is_constant() || s.constant() >= 0, "size {} is negative", s.constant());
  return sizes;
}

Values constant_fill(OpContext& ctx) {
  return {full(ctx, ctx.attr_dtype("dtype", DType::f32), filled_shape(ctx), ctx.attr_float("value", 0))};
}

Values given_tensor_fill(OpContext& ctx) {
  const std::vector<float> values = ctx.attr_floats("values");
  Tensor t = Tensor::make(DType::f32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as_mutable<float>().begin());
  return {ir::reshape(ctx.program, ir::make_constant(ctx.program, std::move(t)), filled_shape(ctx))};
}

/// Slice with its bounds as inputs, before opset 10 had it.
Values dynamic_slice(OpContext& ctx) {
  Values inputs;
  for (int i = 0; i < std::min(ctx.num_inputs(), 4); ++i) inputs.push_back(ctx.value(i));
  return lower_as(ctx, "Slice", 10, std::move(inputs), {});
}

} // namespace

void register_experimental(Registry& r) {
  r.add("Affine", since(1), pointwise(affine, 1, 0));
  r.add("ParametricSoftplus", since(1), pointwise(parametric_softplus, 1, 1));
  r.add("ScaledTanh", since(1), pointwise(scaled_tanh, 1, 1));
  r.add("Scale", since(1), scale);
  r.add("ImageScaler", since(1), image_scaler);
  r.add("Crop", since(1), crop);
  r.add("ConstantFill", since(1), constant_fill);
  r.add("GivenTensorFill", since(1), given_tensor_fill);
  r.add("DynamicSlice", since(1), dynamic_slice);
}

} // namespace tbx::lowering
