// LinearRegressor and LinearClassifier: one matrix product and pointwise work around it.
#include "lowering/ops/families.h"
#include "lowering/ops/ml/ml.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// rows x coefficients^T + intercepts, [N, targets] of f32.
TensorBox linear_scores(OpContext& ctx, int64_t targets, const std::vector<float>& coefficients,
                        const std::vector<float>& intercepts) {
  TensorBox x = convert(ctx, rows_of(ctx), DType::f32);
  auto count = static_cast<int64_t>(coefficients.size());
  TBX_MODEL(targets > 0 && count > 0 && count % targets == 0, "{} coefficients for {} targets", count,
            targets);
  TBX_MODEL(intercepts.empty() || static_cast<int64_t>(intercepts.size()) == targets,
            "{} intercepts for {} targets", intercepts.size(), targets);
  int64_t features = count / targets;
  SymInt width = x.sizes()[1];
  if (width.is_constant())
    TBX_MODEL(width.constant() == features, "{} coefficients per target for {} features", features,
              width.constant());
  else
    ctx.program.add_check(width - SymInt(features), true,
                          fmt::format("{}: the input must have {} features", ctx.node.op_type, features));
  const int swap[] = {1, 0};
  TensorBox w = ir::permute(ctx.program, float_constant(ctx, {targets, features}, coefficients), swap);
  if (intercepts.empty()) return matrix_product(ctx, x, w, nullptr, 1, 1, DType::f32);
  TensorBox bias = float_constant(ctx, {targets}, intercepts);
  return matrix_product(ctx, x, w, &bias, 1, 1, DType::f32);
}

Values linear_regressor(OpContext& ctx) {
  TensorBox scores = linear_scores(ctx, ctx.attr_int("targets", 1), ctx.attr_floats("coefficients"),
                                   ctx.attr_floats("intercepts"));
  return {transform_scores(ctx, scores, post_transform(ctx))};
}

/// One score and two labels: the other class gets the complement of the score.
TensorBox two_classes(OpContext& ctx, const TensorBox& score, PostTransform transform) {
  SymInts sizes{score.sizes()[0], 2};
  shared(ctx, score, 2);
  TensorBox both = generate(ctx, DType::f32, sizes, [&](std::span<const SymInt> at) {
    const SymInt from[] = {at[0], 0};
    Expr s = score.load(ctx.program, from), column = ctx.c.index(at[1]);
    Expr first = ir::binary(Op::equal, column, ctx.c.constant_int(DType::i64, 0));
    if (transform == PostTransform::logistic)
      return ir::unary(Op::sigmoid, ir::where(first, ir::unary(Op::neg, s), s));
    return ir::where(first, ir::sub(number(s, 1), s), s);
  });
  return transform == PostTransform::probit ? transform_scores(ctx, both, transform) : both;
}

/// Label of the greatest score before the transform; one score chooses by its sign.
Values linear_classifier(OpContext& ctx) {
  ClassLabels labels = class_labels(ctx, "classlabels_ints", "classlabels_strings");
  std::vector<float> coefficients = ctx.attr_floats("coefficients"),
                     intercepts = ctx.attr_floats("intercepts");
  int64_t targets = static_cast<int64_t>(intercepts.size());
  if (intercepts.empty()) {
    auto width = rows_of(ctx).sizes()[1].as_constant();
    targets = width && *width > 0 ? static_cast<int64_t>(coefficients.size()) / *width : labels.size();
  }
  TBX_MODEL(targets <= labels.size() || targets == 1, "{} scores for {} classes", targets, labels.size());
  TensorBox scores = linear_scores(ctx, targets, coefficients, intercepts);
  PostTransform transform = post_transform(ctx);
  realize(ctx, scores, "scores for labels and transform");
  if (targets == 1) {
    SymInts sizes{scores.sizes()[0]};
    TensorBox best = generate(ctx, DType::i64, sizes, [&](std::span<const SymInt> at) {
      const SymInt from[] = {at[0], 0};
      Expr s = scores.load(ctx.program, from);
      return to_compute(ir::binary(Op::greater, s, number(s, 0)), DType::i64);
    });
    bool both = labels.size() == 2;
    if (!both) labels = {{0, 1}, {}};
    return {labels_of(ctx, best, labels),
            both ? two_classes(ctx, scores, transform) : transform_scores(ctx, scores, transform)};
  }
  AxisReducer reduce(ctx, scores.sizes(), {1});
  TensorBox best = reduce.drop(reduce(ReduceOp::argmax, DType::i64, scores));
  return {labels_of(ctx, best, labels), transform_scores(ctx, scores, transform)};
}

} // namespace

void register_ml_linear(Registry& r) {
  r.add("LinearRegressor", since(1), linear_regressor, kMl);
  r.add("LinearClassifier", since(1), linear_classifier, kMl);
  r.labels_in("classlabels_ints", "LinearClassifier", kMl);
}

} // namespace tbx::lowering
