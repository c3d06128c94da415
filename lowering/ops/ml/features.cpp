// Preparation of features: Scaler, Normalizer, Imputer, Binarizer, ArrayFeatureExtractor, FeatureVectorizer,
// OneHotEncoder.
#include <cmath>
#include <set>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/ml/ml.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// A list of one value, or of one per feature (dimension 1; 0 of a vector), placed for broadcast.
template <class T>
TensorBox per_feature(OpContext& ctx, const TensorBox& x, const std::vector<T>& values, DType type,
                      const char* name) {
  auto n = static_cast<int64_t>(values.size());
  TBX_MODEL(n > 0, "attribute '{}' is missing or empty", name);
  int axis = x.rank() > 1 ? 1 : 0;
  std::vector<int64_t> dims(static_cast<size_t>(x.rank()), 1);
  if (n > 1) {
    TBX_MODEL(x.rank() > 0, "attribute '{}' has {} entries for a scalar", name, n);
    SymInt features = x.sizes()[axis];
    if (features.is_constant())
      TBX_MODEL(features.constant() == n, "attribute '{}' has {} entries for {} features", name, n,
                features.constant());
    else
      ctx.program.add_check(
          features - SymInt(n), true,
          fmt::format("{}: '{}' has {} entries, one per feature", ctx.node.op_type, name, n));
    dims[axis] = n;
  }
  Tensor t = Tensor::make(type, dims);
  for (int64_t i = 0; i < n; ++i) {
    if (type == DType::f32) t.as_mutable<float>()[i] = static_cast<float>(values[i]);
    if (type == DType::f64) t.as_mutable<double>()[i] = static_cast<double>(values[i]);
    if (type == DType::i64) t.as_mutable<int64_t>()[i] = static_cast<int64_t>(values[i]);
    if (type == DType::i32) t.as_mutable<int32_t>()[i] = static_cast<int32_t>(values[i]);
  }
  return ir::make_constant(ctx.program, std::move(t));
}

DType float_of(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

/// (x - offset) * scale
Values scaler(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  DType type = float_of(x.dtype());
  std::vector<float> offset = ctx.attr_floats("offset"), scale = ctx.attr_floats("scale");
  if (offset.empty()) offset = {0};
  if (scale.empty()) scale = {1};
  const TensorBox xs[] = {x, per_feature(ctx, x, offset, type, "offset"),
                          per_feature(ctx, x, scale, type, "scale")};
  return {map(ctx, DType::f32, xs,
              [&](std::span<const Expr> v) { return ir::mul(ir::sub(to_compute(v[0], type), v[1]), v[2]); })};
}

/// x over the norm of its row; a row of norm 0 stays as it is.
Values normalizer(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 1, "the input is a scalar");
  std::string norm = ctx.attr_string("norm", "MAX");
  TBX_MODEL(norm == "MAX" || norm == "L1" || norm == "L2", "unknown norm '{}'", norm);
  shared(ctx, x, 2);
  AxisReducer reduce(ctx, x.sizes(), {x.rank() > 1 ? 1 : 0});
  ReduceOp op = norm == "MAX" ? ReduceOp::max : ReduceOp::sum;
  TensorBox total = reduce(op, DType::f32, x, [&](Expr e) {
    e = to_compute(e, DType::f32);
    return norm == "MAX" ? e : norm == "L1" ? ir::unary(Op::abs, e) : ir::mul(e, e);
  });
  TensorBox divisor = map(ctx, DType::f32, total, [&](Expr s) {
    if (norm == "L2") s = ir::unary(Op::sqrt, s);
    return ir::where(ir::binary(Op::equal, s, number(s, 0)), number(s, 1), s);
  });
  realize(ctx, divisor, "norm of a row");
  return {
      map(ctx, DType::f32, x, divisor, [](Expr e, Expr d) { return ir::div(to_compute(e, DType::f32), d); })};
}

Values imputer(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  std::vector<float> floats = ctx.attr_floats("imputed_value_floats");
  std::vector<int64_t> ints = ctx.attr_ints("imputed_value_int64s");
  TBX_MODEL(!floats.empty() || !ints.empty(),
            "one of the attributes 'imputed_value_floats' and 'imputed_value_int64s' must be given");
  bool use_floats = ints.empty() || (is_float(x.dtype()) && !floats.empty());
  double wanted = ctx.attr_float("replaced_value_float", 0);
  int64_t wanted_int = ctx.attr_int("replaced_value_int64", 0);
  TensorBox value = use_floats ? per_feature(ctx, x, floats, x.dtype(), "imputed_value_floats")
                               : per_feature(ctx, x, ints, x.dtype(), "imputed_value_int64s");
  return {map(ctx, x.dtype(), x, value, [&](Expr e, Expr v) {
    Expr hit;
    if (use_floats && std::isnan(wanted))
      hit = is_float(x.dtype()) ? ir::unary(Op::is_nan, e) : ctx.c.boolean(false);
    else if (use_floats)
      hit = ir::binary(Op::equal, is_float(x.dtype()) ? e : to_compute(e, DType::f64),
                       is_float(x.dtype()) ? number(e, wanted) : ctx.c.constant(DType::f64, wanted));
    else
      hit = ir::binary(Op::equal, e,
                       is_float(x.dtype()) ? number(e, static_cast<double>(wanted_int))
                                           : ctx.c.constant_int(e->dtype, wanted_int));
    return ir::where(hit, v, e);
  })};
}

Values binarizer(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  float threshold = ctx.attr_float("threshold", 0);
  return {map(ctx, x.dtype(), x, [&](Expr e) {
    DType type = is_float(x.dtype()) ? e->dtype : DType::f64; // ints are compared with the exact threshold
    Expr v = to_compute(e, type);
    return ir::where(ir::binary(Op::greater, v, number(v, threshold)), number(e, 1), number(e, 0));
  })};
}

/// Columns of the last dimension; the columns of a vector become one row.
Values array_feature_extractor(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &picks = ctx.in(1);
  TBX_MODEL(x.rank() >= 1, "the input is a scalar");
  TensorBox flat = ir::reshape(ctx.program, picks, {ir::product(picks.sizes())});
  SymInts sizes = x.sizes();
  SymInt extent = sizes.back();
  sizes.back() = flat.sizes()[0];
  if (x.rank() == 1) sizes.insert(sizes.begin(), 1);
  return {generate(ctx, x.dtype(), sizes, [&](std::span<const SymInt> at) {
    const SymInt pick[] = {at.back()};
    SymInts from(x.rank() == 1 ? at.begin() + 1 : at.begin(), at.end());
    from.back() = ctx.c.indirect(to_compute(flat.load(ctx.program, pick), DType::i64), extent, false);
    return x.load(ctx.program, from);
  })};
}

/// Columns of all inputs side by side, each cut or filled with zeros to its entry of `inputdimensions`.
Values feature_vectorizer(OpContext& ctx) {
  std::vector<int64_t> widths = ctx.attr_ints("inputdimensions");
  TBX_MODEL(widths.empty() || static_cast<int>(widths.size()) == ctx.num_inputs(),
            "inputdimensions has {} entries for {} inputs", widths.size(), ctx.num_inputs());
  std::vector<TensorBox> parts;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    TensorBox x = ctx.in(i);
    TBX_MODEL(x.rank() == 1 || x.rank() == 2, "input {} has rank {}, expected 1 or 2", i, x.rank());
    const int last[] = {1};
    if (x.rank() == 1) x = ir::unsqueeze(ctx.program, x, last);
    SymInts sizes = x.sizes();
    if (!widths.empty()) {
      TBX_MODEL(widths[i] >= 0, "inputdimensions has a negative entry {}", widths[i]);
      sizes[1] = widths[i];
    }
    SymInt width = x.sizes()[1];
    if (sizes[1] == width) {
      parts.push_back(convert(ctx, x, DType::f32));
      continue;
    }
    if (!width.is_constant())
      ask_for_sizes(fmt::format("the width of input {} must be known while compiling", i));
    if (width.constant() >= sizes[1].constant()) {
      parts.push_back(convert(ctx, ir::slice(ctx.program, x, 1, 0, 1, sizes[1]), DType::f32));
      continue;
    }
    parts.push_back(convert(ctx, x, DType::f32));
    parts.push_back(full(ctx, DType::f32, {sizes[0], sizes[1] - width}, 0));
  }
  return {concatenate(ctx, parts, 1)};
}

/// Input [...] -> [..., categories], 1 where the value is the category. `zeros` 0: every value must be one.
Values one_hot_encoder(OpContext& ctx) {
  ClassLabels categories = class_labels(ctx, "cats_int64s", "cats_strings");
  if (!categories.strings.empty()) throw_unsupported("categories that are strings");
  const TensorBox& x = ctx.in(0);
  SymInts sizes = x.sizes();
  sizes.push_back(categories.size());
  if (ctx.attr_int("zeros", 1) == 0)
    return host_call(ctx, {{DType::f32, sizes}}, {{"categories", categories.ints}});
  TensorBox table = ir::make_constant(ctx.program, Tensor::of_ints(categories.ints));
  // Of a category that is listed twice the last entry counts.
  std::vector<int64_t> counts(categories.ints.size(), 1);
  std::set<int64_t> later;
  for (size_t i = counts.size(); i-- > 0;) counts[i] = later.insert(categories.ints[i]).second;
  bool twice = later.size() < counts.size();
  TensorBox valid = ir::make_constant(ctx.program, Tensor::of_ints(counts));
  return {generate(ctx, DType::f32, sizes, [&](std::span<const SymInt> at) {
    const SymInt column[] = {at.back()};
    Expr value = to_compute(x.load(ctx.program, at.first(at.size() - 1)), DType::i64);
    Expr hit = ir::binary(Op::equal, value, table.load(ctx.program, column));
    if (twice) {
      Expr v = valid.load(ctx.program, column);
      hit = ir::binary(Op::logical_and, hit, ir::binary(Op::not_equal, v, number(v, 0)));
    }
    return to_compute(hit, DType::f32);
  })};
}

} // namespace

void register_ml_features(Registry& r) {
  r.add("Scaler", since(1), scaler, kMl);
  r.add("Normalizer", since(1), normalizer, kMl);
  r.add("Imputer", since(1), imputer, kMl);
  r.add("Binarizer", since(1), binarizer, kMl);
  r.add("ArrayFeatureExtractor", since(1), array_feature_extractor, kMl);
  r.add("FeatureVectorizer", since(1), feature_vectorizer, kMl);
  r.add("OneHotEncoder", since(1), one_hot_encoder, kMl);
  r.need("ArrayFeatureExtractor", 1, index_into(0, -1), kMl);
  r.mark(Trait::moves, {"ArrayFeatureExtractor"}, kMl);
}

} // namespace tbx::lowering
