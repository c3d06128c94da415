// Normalisations: two-pass statistics over rows (reductions), then one pointwise pass. Statistics are f32 for
// narrow floats, and the normalised value is rounded to the data type before scale and bias where the
// operator says so.
#include <fmt/format.h>

#include <algorithm>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

const char* const kMicrosoft = "com.microsoft";

/// f32, or f64 for doubles.
DType statistics_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

TensorBox mean_of(OpContext& ctx, const AxisReducer& reduce, const TensorBox& sum) {
  TensorBox mean = map(ctx, sum.dtype(), sum,
                       [&](Expr s) { return ir::div(s, size_as(ctx.c, reduce.count(), s->dtype)); });
  realize(ctx, mean, "statistic of a row");
  return mean;
}

/// 1 / sqrt(mean of squares + epsilon).
TensorBox inverse_root(OpContext& ctx, const AxisReducer& reduce, const TensorBox& sum, double epsilon) {
  TensorBox inverse = map(ctx, sum.dtype(), sum, [&](Expr s) {
    Expr mean = ir::div(s, size_as(ctx.c, reduce.count(), s->dtype));
    return ir::unary(Op::reciprocal, ir::unary(Op::sqrt, ir::add(mean, number(mean, epsilon))));
  });
  realize(ctx, inverse, "statistic of a row");
  return inverse;
}

struct Statistics {
  TensorBox mean, inverse_deviation; ///< reduced dimensions kept as 1
};

Statistics statistics(OpContext& ctx, const AxisReducer& reduce, const TensorBox& x, double epsilon) {
  shared(ctx, x, 3);
  Moments m = reduce.moments(x, statistics_type(x.dtype()));
  return {m.mean, inverse_root(ctx, reduce, m.squares, epsilon)};
}

/// (x - mean) * inverse deviation, rounded to the type of x where the operator says so, then * scale + bias
/// (either may be undefined).
TensorBox normalized(OpContext& ctx, const TensorBox& x, const Statistics& s, const TensorBox& scale,
                     const TensorBox& bias, DType result, bool rounds = true) {
  std::vector<TensorBox> xs = {x, s.inverse_deviation};
  auto optional = [&](const TensorBox& t) {
    if (t.defined()) xs.push_back(t);
    return t.defined() ? static_cast<int>(xs.size()) - 1 : -1;
  };
  int mean = optional(s.mean), a = optional(scale), b = optional(bias);
  return map(ctx, result, xs, [&](std::span<const Expr> v) {
    Expr e = to_compute(v[0], s.inverse_deviation.dtype());
    if (mean >= 0) e = ir::sub(e, v[mean]);
    e = to_compute(ir::mul(e, v[1]), x.dtype());
    if (rounds) e = rounded(e, x.dtype());
    e = to_compute(e, result);
    if (a >= 0) e = ir::mul(e, to_compute(v[a], result));
    if (b >= 0) e = ir::add(e, to_compute(v[b], result));
    return e;
  });
}

TensorBox optional_input(const OpContext& ctx, int i) { return ctx.has(i) ? ctx.in(i) : TensorBox(); }

/// Scale or bias may be repeated, never the data.
void require_fits(OpContext& ctx, const TensorBox& x, const TensorBox& parameter, const char* what) {
  if (!parameter.defined()) return;
  const int lead = x.rank() - parameter.rank();
  TBX_MODEL(lead >= 0, "{} of rank {} for data of rank {}", what, parameter.rank(), x.rank());
  for (int k = 0; k < parameter.rank(); ++k)
    require_broadcast(ctx, parameter.sizes()[k], x.sizes()[lead + k], what);
}

/// Y, Mean and InvStdDev of a layer normalisation; without mean: root mean square.
std::vector<LoweredValue> layer_norm(OpContext& ctx, const TensorBox& x, const TensorBox& scale,
                                     const TensorBox& bias, int axis, double epsilon, bool with_mean,
                                     DType result) {
  require_fits(ctx, x, scale, "the scale");
  require_fits(ctx, x, bias, "the bias");
  AxisReducer reduce(ctx, x.sizes(), axes_from(axis, x.rank()));
  Statistics s;
  if (with_mean) {
    s = statistics(ctx, reduce, x, epsilon);
  } else {
    shared(ctx, x, 2);
    DType type = statistics_type(x.dtype());
    TensorBox squares = reduce(ReduceOp::sum, type, x, [&](Expr e) {
      e = to_compute(e, type);
      return ir::mul(e, e);
    });
    s.inverse_deviation = inverse_root(ctx, reduce, squares, epsilon);
  }
  DType stash = ctx.attr_dtype("stash_type", DType::f32);
  std::vector<LoweredValue> out = {normalized(ctx, x, s, scale, bias, result)};
  if (with_mean) out.push_back(convert(ctx, s.mean, stash));
  out.push_back(convert(ctx, s.inverse_deviation, stash));
  return out;
}

std::vector<LoweredValue> lower_layer_norm(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  // ONNX Runtime's own form, in files of before opset 17, gives the type of the scale.
  const DType result = ctx.opset() < 17 ? ctx.dtype(1) : x.dtype();
  return layer_norm(ctx, x, ctx.in(1), optional_input(ctx, 2), ctx.axis(ctx.attr_int("axis", -1), x.rank()),
                    ctx.attr_float("epsilon", 1e-5f), true, result);
}

/// RMSNormalization, and SimplifiedLayerNormalization as ONNX Runtime writes it.
std::vector<LoweredValue> lower_rms_norm(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  return layer_norm(ctx, x, ctx.in(1), {}, ctx.axis(ctx.attr_int("axis", -1), x.rank()),
                    ctx.attr_float("epsilon", 1e-5f), false, ctx.dtype(1));
}

/// Normalises input + skip + bias over the last axis; outputs Y, mean, inverse deviation and the sum.
LowerFn skip_layer_norm(bool with_mean) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    std::vector<TensorBox> terms = {ctx.in(0), ctx.in(1)};
    int bias = with_mean ? 4 : 3;
    if (ctx.has(bias)) terms.push_back(ctx.in(bias));
    DType type = ctx.dtype(0);
    TensorBox sum = map(ctx, type, terms, [](std::span<const Expr> v) {
      Expr e = ir::add(v[0], v[1]);
      return v.size() > 2 ? ir::add(e, v[2]) : e;
    });
    TBX_MODEL(sum.rank() > 0, "input and skip are scalars");
    if (ctx.wants(3)) realize(ctx, sum, "output of a skip normalisation");
    auto out = layer_norm(ctx, sum, ctx.in(2), with_mean ? optional_input(ctx, 3) : TensorBox(),
                          sum.rank() - 1, ctx.attr_float("epsilon", 1e-12f), with_mean, type);
    if (!with_mean) // which subtracts none; ONNX Runtime gives 0 as well
      out.insert(out.begin() + 1, full(ctx, DType::f32, out[1].sizes(), 0));
    out.push_back(sum);
    return out;
  };
}

std::vector<LoweredValue> lower_instance_norm(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 2, "data of rank {}", x.rank());
  for (int i : {1, 2})
    if (ctx.rank(i) == 1)
      ctx.program.add_check(ctx.sizes(i)[0] - x.sizes()[1], true,
                            fmt::format("{} of {} elements for {} channels", i == 1 ? "a scale" : "a bias",
                                        ir::to_string(ctx.sizes(i)[0]), ir::to_string(x.sizes()[1])));
  AxisReducer reduce(ctx, x.sizes(), axes_from(2, x.rank()));
  Statistics s = statistics(ctx, reduce, x, ctx.attr_float("epsilon", 1e-5f));
  return {normalized(ctx, x, s, per_channel(ctx, ctx.in(1), x.rank()), per_channel(ctx, ctx.in(2), x.rank()),
                     x.dtype(), false)};
}

/// Scale and bias are per group in opset 18, per channel from 21 on.
std::vector<LoweredValue> lower_group_norm(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 2, "data of rank {}", x.rank());
  int64_t groups = ctx.required_int("num_groups");
  SymInt channels = x.sizes()[1];
  TBX_MODEL(groups > 0 && (!channels.is_constant() || channels.constant() % groups == 0),
            "channels are not divisible into {} groups", groups);
  SymInt in_group = ir::floordiv(channels, groups);
  SymInts split = x.sizes();
  split[1] = groups;
  split.insert(split.begin() + 2, in_group);
  TensorBox grouped = ir::reshape(ctx.program, x, split);
  auto parameter = [&](int i) {
    SymInts sizes(split.size() - 1, 1);
    sizes[0] = groups;
    if (ctx.opset() >= 21) sizes[1] = in_group;
    return ir::reshape(ctx.program, ctx.in(i), sizes);
  };
  AxisReducer reduce(ctx, split, axes_from(2, grouped.rank()));
  Statistics s = statistics(ctx, reduce, grouped, ctx.attr_float("epsilon", 1e-5f));
  TensorBox y = normalized(ctx, grouped, s, parameter(1), parameter(2), x.dtype());
  return {ir::reshape(ctx.program, y, x.sizes())};
}

// --- BatchNormalization

TensorBox affine(OpContext& ctx, const TensorBox& x, const TensorBox& mean, const TensorBox& factor,
                 const TensorBox& bias) {
  const TensorBox xs[] = {x, mean, factor, bias};
  return map(ctx, x.dtype(), xs, [&](std::span<const Expr> v) {
    DType type = v[2]->dtype;
    Expr e = ir::mul(ir::sub(to_compute(v[0], type), to_compute(v[1], type)), v[2]);
    return to_compute(ir::add(e, to_compute(v[3], type)), x.dtype());
  });
}

/// scale / sqrt(variance + epsilon)
TensorBox channel_factor(OpContext& ctx, const TensorBox& scale, const TensorBox& variance, double epsilon) {
  DType type = statistics_type(variance.dtype());
  TensorBox factor = map(ctx, type, scale, variance, [&](Expr a, Expr v) {
    v = to_compute(v, type);
    return ir::div(to_compute(a, type), ir::unary(Op::sqrt, ir::add(v, number(v, epsilon))));
  });
  realize(ctx, factor, "factor of a channel");
  return factor;
}

/// Statistics of the batch, and the running ones as moving averages (population variance).
std::vector<LoweredValue> train_batch_norm(OpContext& ctx, double epsilon) {
  const TensorBox& x = ctx.in(0);
  std::vector<int> axes = axes_from(1, x.rank());
  axes[0] = 0;
  AxisReducer reduce(ctx, x.sizes(), axes);
  DType type = statistics_type(x.dtype());
  shared(ctx, x, 3);
  auto [mean, squares] = reduce.moments(x, type);
  TensorBox variance = mean_of(ctx, reduce, squares);
  TensorBox factor = channel_factor(ctx, per_channel(ctx, ctx.in(1), x.rank()), variance, epsilon);
  double momentum = ctx.attr_float("momentum", 0.9f);
  auto running = [&](int input, const TensorBox& current) {
    return map(ctx, ctx.dtype(input), ctx.in(input), reduce.drop(current), [&](Expr old, Expr now) {
      Expr a = ir::mul(to_compute(old, type), ctx.c.constant(type, momentum));
      return to_compute(ir::add(a, ir::mul(now, ctx.c.constant(type, 1 - momentum))), ctx.dtype(input));
    });
  };
  TensorBox y = affine(ctx, x, mean, factor, per_channel(ctx, ctx.in(2), x.rank()));
  return {y, running(3, mean), running(4, variance), convert(ctx, reduce.drop(mean), ctx.dtype(3)),
          convert(ctx, reduce.drop(variance), ctx.dtype(4))};
}

std::vector<LoweredValue> lower_batch_norm(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 1, "data of rank 0");
  double epsilon = ctx.attr_float("epsilon", 1e-5f);
  bool training = ctx.opset() >= 14 ? ctx.attr_int("training_mode", 0) != 0
                                    : ctx.wants(1) && (ctx.opset() >= 7 || ctx.attr_int("is_test", 0) == 0);
  bool per_element = ctx.opset() < 9 && ctx.attr_int("spatial", 1) == 0;
  if (training) {
    if (per_element || x.rank() < 2) throw_unsupported("training mode with statistics per element");
    return train_batch_norm(ctx, epsilon);
  }
  auto parameter = [&](int i) {
    return per_element || x.rank() < 2 ? ctx.in(i) : per_channel(ctx, ctx.in(i), x.rank());
  };
  TensorBox factor = channel_factor(ctx, parameter(1), parameter(4), epsilon);
  return {affine(ctx, x, parameter(3), factor, parameter(2))};
}

// --- other norms

std::vector<LoweredValue> lower_lp_norm(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int64_t p = ctx.attr_int("p", 2);
  TBX_MODEL(p == 1 || p == 2, "p is {}, not 1 or 2", p);
  DType type = compute_type(x.dtype());
  shared(ctx, x, 2);
  AxisReducer reduce(ctx, x.sizes(), {ctx.axis(ctx.attr_int("axis", -1), x.rank())});
  TensorBox sum =
      reduce(ReduceOp::sum, type, x, [&](Expr e) { return p == 1 ? ir::unary(Op::abs, e) : ir::mul(e, e); });
  return {map(ctx, x.dtype(), x, sum, [&](Expr e, Expr s) {
    Expr norm = p == 1 ? s : ir::unary(Op::sqrt, s);
    return ir::where(ir::binary(Op::equal, norm, number(norm, 0)), number(e, 0), ir::div(e, norm));
  })};
}

std::vector<LoweredValue> lower_mean_variance_norm(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  AxisReducer reduce(ctx, x.sizes(), ctx.axes(ctx.attr_ints("axes", {0, 2, 3}), x.rank()));
  shared(ctx, x, 3);
  DType type = statistics_type(x.dtype());
  auto [mean, squares] = reduce.moments(x, type);
  TensorBox factor = map(ctx, type, squares, [&](Expr s) {
    Expr deviation = ir::unary(Op::sqrt, ir::div(s, size_as(ctx.c, reduce.count(), type)));
    return ir::unary(Op::reciprocal, ir::add(deviation, number(deviation, 1e-9)));
  });
  realize(ctx, factor, "statistic of a row");
  return {normalized(ctx, x, {mean, factor}, {}, {}, x.dtype())};
}

/// The square of the element `offset` channels away, 0 outside.
Expr neighbour_square(OpContext& ctx, const TensorBox& x, std::span<const SymInt> at, SymInt offset) {
  ir::Context& c = ctx.c;
  SymInts there(at.begin(), at.end());
  there[1] = there[1] + offset;
  Expr position = c.index(there[1]);
  Expr inside = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, position, number(position, 0)),
                           ir::binary(Op::less, position, c.index(x.sizes()[1])));
  Expr e = x.load(ctx.program, there);
  e = ir::where(inside, ir::mask_loads(e, inside), number(e, 0));
  return ir::mul(e, e);
}

constexpr int64_t kMaxWindow = 1 << 20;    ///< of an unknown number of channels
constexpr int64_t kMaxUnrolledWindow = 25; ///< a wider window is a reduction of its own

/// x / (bias + alpha/size * sum of squares of the neighbouring channels)^beta
std::vector<LoweredValue> lower_lrn(OpContext& ctx) {
  TensorBox x = ctx.in(0);
  TBX_MODEL(x.rank() >= 2, "data of rank {}", x.rank());
  int64_t size = ctx.required_int("size");
  TBX_MODEL(size > 0, "size is {}", size);
  const double divisor = static_cast<double>(size);
  // Wider than all channels on both sides makes no difference.
  if (auto channels = x.sizes()[1].as_constant()) size = std::min(size, 2 * *channels + 1);
  TBX_MODEL(size <= kMaxWindow, "size is {}, at most {} is possible here", size, kMaxWindow);
  double alpha = ctx.attr_float("alpha", 1e-4f), beta = ctx.attr_float("beta", 0.75f),
         bias = ctx.attr_float("bias", 1);
  SymInt first = -((size - 1) / 2);
  realize(ctx, x, "read through a window");
  TensorBox wide;
  if (size > kMaxUnrolledWindow) {
    SymInts space = x.sizes();
    space.push_back(size);
    AxisReducer reduce(ctx, space, {x.rank()});
    wide = reduce.drop(reduce(ReduceOp::sum, compute_type(x.dtype()), [&](std::span<const SymInt> at) {
      return neighbour_square(ctx, x, at.first(at.size() - 1), first + at.back());
    }));
  }
  return {generate(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    Expr sum = wide.defined() ? wide.load(ctx.program, at) : neighbour_square(ctx, x, at, first);
    for (int64_t k = 1; k < size && !wide.defined(); ++k)
      sum = ir::add(sum, neighbour_square(ctx, x, at, first + SymInt(k)));
    Expr base = ir::add(number(sum, bias), ir::mul(number(sum, alpha / divisor), sum));
    return ir::div(x.load(ctx.program, at), ir::binary(Op::pow, base, number(base, beta)));
  })};
}

} // namespace

void register_norm(Registry& r) {
  r.add("LayerNormalization", since(1), lower_layer_norm);
  r.add("RMSNormalization", since(23), lower_rms_norm);
  r.add("SimplifiedLayerNormalization", since(1), lower_rms_norm);
  r.add("GroupNormalization", since(18), lower_group_norm);
  r.add("InstanceNormalization", since(1), lower_instance_norm);
  r.add("BatchNormalization", since(1), lower_batch_norm);
  r.add("LpNormalization", since(1), lower_lp_norm);
  r.add("MeanVarianceNormalization", since(9), lower_mean_variance_norm);
  r.add("LRN", since(1), lower_lrn);
  r.add("SkipLayerNormalization", since(1), skip_layer_norm(true), kMicrosoft);
  r.add("SkipSimplifiedLayerNormalization", since(1), skip_layer_norm(false), kMicrosoft);
  r.add("SimplifiedLayerNormalization", since(1), lower_rms_norm, kMicrosoft);
  // Their statistics are float32 whatever memory holds.
  r.narrow(Narrow::follows, {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization",
                             "GroupNormalization", "InstanceNormalization", "BatchNormalization", "LRN"});
  r.narrow(Narrow::follows,
           {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "SimplifiedLayerNormalization"},
           kMicrosoft);
  r.mark(Trait::half_rows,
         {"LayerNormalization", "RMSNormalization", "GroupNormalization", "InstanceNormalization"});
  r.mark(Trait::half_follows, {"BatchNormalization"});
  r.type_from(0, {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}, kMicrosoft);
  r.type_from(1, {"SimplifiedLayerNormalization"});
  r.type_from(1, {"SimplifiedLayerNormalization"}, kMicrosoft);
}

} // namespace tbx::lowering
