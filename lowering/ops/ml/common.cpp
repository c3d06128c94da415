// Score transforms, class labels and rows: what the operators of ai.onnx.ml share.
#include <map>
#include <numbers>

#include "lowering/ops/ml/ml.h"

namespace tbx::lowering {

PostTransform post_transform(const OpContext& ctx) {
  static const std::map<std::string, PostTransform> names = {{"NONE", PostTransform::none},
                                                             {"SOFTMAX", PostTransform::softmax},
                                                             {"LOGISTIC", PostTransform::logistic},
                                                             {"SOFTMAX_ZERO", PostTransform::softmax_zero},
                                                             {"PROBIT", PostTransform::probit}};
  std::string name = ctx.attr_string("post_transform", "NONE");
  auto it = names.find(name);
  TBX_MODEL(it != names.end(), "unknown post_transform '{}'", name);
  return it->second;
}

namespace {

/// The quantile of the normal distribution, by Winitzki's approximation of the inverse error function.
Expr probit(Expr p) {
  constexpr double kA = 0.147;
  Expr x = ir::sub(ir::mul(p, number(p, 2)), number(p, 1)), one = number(p, 1);
  Expr log = ir::unary(Op::log, ir::mul(ir::sub(one, x), ir::add(one, x)));
  Expr a = ir::add(number(p, 2 / (std::numbers::pi * kA)), ir::mul(log, number(p, 0.5)));
  Expr root = ir::unary(Op::sqrt, ir::sub(ir::mul(a, a), ir::mul(log, number(p, 1 / kA))));
  Expr value = ir::mul(ir::unary(Op::sqrt, ir::sub(root, a)), number(p, std::numbers::sqrt2));
  return ir::where(ir::binary(Op::less, x, number(p, 0)), ir::unary(Op::neg, value), value);
}

/// Softmax that leaves scores of 0 out of the sum and at 0.
TensorBox softmax_zero(OpContext& ctx, const TensorBox& scores) {
  shared(ctx, scores, 2);
  AxisReducer reduce(ctx, scores.sizes(), {scores.rank() - 1});
  TensorBox greatest = reduce(ReduceOp::max, scores.dtype(), scores);
  auto is_zero = [](Expr s) { return ir::binary(Op::less_equal, ir::unary(Op::abs, s), number(s, 1e-7f)); };
  TensorBox e = map(ctx, scores.dtype(), scores, greatest, [&](Expr s, Expr m) {
    return ir::where(is_zero(s), ir::mul(s, ir::unary(Op::exp, ir::unary(Op::neg, m))),
                     ir::unary(Op::exp, ir::sub(s, m)));
  });
  TensorBox counted = map(ctx, scores.dtype(), e, scores,
                          [&](Expr v, Expr s) { return ir::where(is_zero(s), number(v, 0), v); });
  return map(ctx, scores.dtype(), e, reduce(ReduceOp::sum, scores.dtype(), counted), ir::div);
}

} // namespace

TensorBox transform_scores(OpContext& ctx, const TensorBox& scores, PostTransform transform) {
  switch (transform) {
  case PostTransform::none: return scores;
  case PostTransform::logistic:
    return map(ctx, scores.dtype(), scores, [](Expr s) { return ir::unary(Op::sigmoid, s); });
  case PostTransform::softmax: return lower_as(ctx, "Softmax", 13, {scores}, {}).at(0).tensor;
  case PostTransform::softmax_zero: return softmax_zero(ctx, scores);
  case PostTransform::probit: return map(ctx, scores.dtype(), scores, probit);
  }
  TBX_INTERNAL(false);
  return scores;
}

ClassLabels class_labels(const OpContext& ctx, const char* ints, const char* strings) {
  ClassLabels labels{ctx.attr_ints(ints), ctx.attr_strings(strings)};
  TBX_MODEL(labels.ints.empty() != labels.strings.empty(),
            "exactly one of the attributes '{}' and '{}' must be given", ints, strings);
  return labels;
}

LoweredValue labels_of(OpContext& ctx, const TensorBox& index, const ClassLabels& labels) {
  if (!labels.strings.empty()) {
    if (!ctx.wants(0)) return {};
    throw_unsupported("class labels that are strings");
  }
  bool counted = true;
  for (size_t i = 0; i < labels.ints.size(); ++i) counted &= labels.ints[i] == static_cast<int64_t>(i);
  if (counted) return index;
  TensorBox table = ir::make_constant(ctx.program, Tensor::of_ints(labels.ints));
  return map(ctx, DType::i64, index, [&](Expr i) {
    const SymInt at[] = {ctx.c.indirect(i, SymInt(labels.size()), false)};
    return table.load(ctx.program, at);
  });
}

TensorBox rows_of(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() == 1 || x.rank() == 2, "the input has rank {}, expected 1 or 2", x.rank());
  const int first[] = {0};
  return x.rank() == 1 ? ir::unsqueeze(ctx.program, x, first) : x;
}

TensorBox float_constant(OpContext& ctx, std::vector<int64_t> dims, const std::vector<float>& values) {
  Tensor t = Tensor::make(DType::f32, std::move(dims));
  TBX_INTERNAL(t.numel() == static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), t.as_mutable<float>().begin());
  return ir::make_constant(ctx.program, std::move(t));
}

} // namespace tbx::lowering
