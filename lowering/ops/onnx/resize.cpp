// Resampling: Resize and Upsample in all modes, as pointwise sums over taps of each axis.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// What one axis does: where output i reads and with which weights.
struct AxisPlan {
  SymInt in, out;
  double scale = 1;         ///< out / in as given
  bool scale_known = true;  ///< false: scale is the quotient of two sizes known at run time
  bool scale_given = false; ///< by `scales`: out is rounded down, in * scale may be fractional
  double roi_start = 0, roi_end = 1;
};

struct ResizeOptions {
  std::string mode = "nearest", coordinates = "half_pixel", nearest = "round_prefer_floor",
              policy = "stretch";
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
};

class AxisSampler {
public:
  AxisSampler(ir::Context& c, const ResizeOptions& o, const AxisPlan& a, SymInt i, DType type)
      : c_(c), o_(o), a_(a), i_(i), type_(type) {}

  Expr f(double v) const { return c_.constant(type_, v); }
  Expr f(SymInt v) const { return c_.cast(c_.index(v), type_); }

  Expr scale() const { return a_.scale_known ? f(a_.scale) : ir::div(f(a_.out), f(a_.in)); }

  /// The size of the result before it is rounded down.
  Expr length() const {
    bool whole = !a_.scale_given || a_.scale == std::floor(a_.scale);
    return whole ? f(a_.out) : ir::mul(f(a_.in), scale());
  }

  /// `several`, or `one` where the result has a single element: a quotient over length() - 1 is NaN there.
  Expr unless_single(Expr one, Expr several) const {
    if (a_.out.is(1) && length() == f(a_.out)) return one;
    if (ir::bounds_of(a_.out).lo > 1) return several;
    return ir::where(ir::binary(Op::equal, length(), f(1)), one, several);
  }

  /// The input coordinate of output i (ONNX Resize, coordinate_transformation_mode).
  Expr coordinate() const {
    const std::string& m = o_.coordinates;
    Expr x = f(i_), half = f(0.5);
    if (m == "asymmetric") return ir::div(x, scale());
    if (m == "align_corners") {
      Expr step = ir::div(f(a_.in - SymInt(1)), ir::sub(length(), f(1)));
      return unless_single(f(0.0), ir::mul(x, step));
    }
    if (m == "pytorch_half_pixel") {
      return unless_single(f(0.0), ir::sub(ir::div(ir::add(x, half), scale()), half));
    }
    if (m == "tf_half_pixel_for_nn") return ir::div(ir::add(x, half), scale());
    if (m == "tf_crop_and_resize") {
      Expr last = f(a_.in - SymInt(1));
      Expr step = ir::div(ir::mul(last, f(a_.roi_end - a_.roi_start)), ir::sub(length(), f(1)));
      return unless_single(ir::mul(last, f(0.5 * (a_.roi_start + a_.roi_end))),
                           ir::add(ir::mul(last, f(a_.roi_start)), ir::mul(x, step)));
    }
    if (m == "half_pixel_symmetric") {
      // The centre of the output falls on the centre of the input although out was rounded.
      Expr full = ir::mul(f(a_.in), scale());
      Expr adjustment = ir::div(f(a_.out), full);
      Expr centre = ir::div(f(a_.in), f(2));
      Expr offset = ir::mul(centre, ir::sub(f(1), adjustment));
      return ir::sub(ir::add(offset, ir::div(ir::add(x, half), scale())), half);
    }
    TBX_MODEL(m == "half_pixel", "unknown coordinate_transformation_mode '{}'", m);
    return ir::sub(ir::div(ir::add(x, half), scale()), half);
  }

  /// Output i is input i.
  bool is_identity() const {
    if (!ir::provably_equal(a_.in, a_.out) || (a_.scale_known && a_.scale != 1)) return false;
    return o_.coordinates != "tf_crop_and_resize" || (a_.roi_start == 0 && a_.roi_end == 1);
  }

  /// Elements of the input that output i is a sum of.
  int64_t taps() const {
    if (is_identity() || o_.mode == "nearest") return 1;
    if (o_.antialias && !a_.scale_known)
      ask_for_sizes("the number of elements that an antialiased resize reads depends on dynamic sizes");
    return 2 * reach();
  }
  bool weighted() const { return o_.mode != "nearest"; }
  /// Weights are divided by their sum.
  bool normalised() const { return weighted() && (o_.exclude_outside || stretch() != 1.0); }

  /// The index that is read without a weight, where arithmetic on indices says it.
  std::optional<SymInt> exact() const {
    if (is_identity()) return i_;
    return o_.mode == "nearest" ? exact_nearest() : std::nullopt;
  }

  /// The index of tap `t`, inside of the input.
  Expr index(SymInt t) const {
    if (!weighted()) return clamped(nearest());
    return clamped(position(t));
  }

  Expr weight(SymInt t) const {
    bool linear = o_.mode == "linear";
    Expr x = coordinate(), base = ir::unary(Op::floor, x);
    Expr distance = ir::mul(ir::sub(ir::add(base, f(t - SymInt(reach() - 1))), x), f(stretch()));
    Expr w = linear ? triangle(distance) : cubic(distance);
    if (!o_.exclude_outside) return w;
    Expr at = position(t);
    Expr inside =
        ir::binary(Op::logical_and, ir::binary(Op::greater_equal, at, c_.constant_int(DType::i64, 0)),
                   ir::binary(Op::less, at, c_.index(a_.in)));
    return ir::where(inside, w, f(0.0));
  }

  /// Outside [0, in - 1], where tf_crop_and_resize fills in a constant.
  Expr outside() const {
    Expr x = coordinate();
    return ir::binary(Op::logical_or, ir::binary(Op::less, x, f(0.0)),
                      ir::binary(Op::greater, x, f(a_.in - SymInt(1))));
  }

private:
  /// Below 1 it widens the kernel (antialias).
  double stretch() const { return o_.antialias && a_.scale < 1 ? a_.scale : 1.0; }
  int64_t reach() const {
    double r = std::ceil((o_.mode == "linear" ? 1.0 : 2.0) / stretch());
    TBX_MODEL(r < 1 << 20, "scale {} of an antialiased resize", a_.scale);
    return static_cast<int64_t>(r);
  }

  /// The coordinate is a fraction with a small whole denominator for every i: nearest is arithmetic on
  /// indices.
  std::optional<SymInt> exact_nearest() const {
    double scale = a_.scale;
    if (!a_.scale_known || scale <= 0) return std::nullopt;
    const bool half = o_.coordinates == "half_pixel", up = scale >= 1;
    if (!half && o_.coordinates != "asymmetric") return std::nullopt;
    const double factor = up ? scale : 1 / scale;
    if (factor != std::floor(factor) || factor > 1 << 20) return std::nullopt;
    const auto s = static_cast<int64_t>(factor);
    if (up) {
      if (!ir::provably_equal(a_.in * SymInt(s), a_.out)) return std::nullopt;
      const bool round = o_.nearest == "round_prefer_floor" || o_.nearest == "round_prefer_ceil";
      if (half ? !round : o_.nearest != "floor") return std::nullopt;
      return ir::floordiv(i_, s);
    }
    // Every s-th element; a power of two, whose inverse f32 holds.
    if ((s & (s - 1)) != 0 || !ir::provably_equal(ir::floordiv(a_.in, s), a_.out)) return std::nullopt;
    const bool above = o_.nearest == "ceil" || o_.nearest == "round_prefer_ceil";
    return i_ * SymInt(s) + SymInt(!half ? 0 : above ? s / 2 : s / 2 - 1);
  }

  Expr nearest() const {
    Expr x = coordinate(), r;
    const std::string& n = o_.nearest;
    if (n == "round_prefer_floor") {
      r = ir::unary(Op::ceil, ir::sub(x, f(0.5)));
    } else if (n == "round_prefer_ceil") {
      r = ir::unary(Op::floor, ir::add(x, f(0.5)));
    } else if (n == "floor") {
      r = ir::unary(Op::floor, x);
    } else {
      TBX_MODEL(n == "ceil", "unknown nearest_mode '{}'", n);
      r = ir::unary(Op::ceil, x);
    }
    return c_.cast(r, DType::i64);
  }

  /// Of tap `t`, which may lie outside.
  Expr position(SymInt t) const {
    Expr base = c_.cast(ir::unary(Op::floor, coordinate()), DType::i64);
    return ir::add(base, c_.index(t - SymInt(reach() - 1)));
  }

  Expr clamped(Expr position) const {
    return ir::binary(Op::min, ir::binary(Op::max, position, c_.constant_int(DType::i64, 0)),
                      c_.index(a_.in - SymInt(1)));
  }

  Expr triangle(Expr distance) const {
    return ir::binary(Op::max, ir::sub(f(1), ir::unary(Op::abs, distance)), f(0.0));
  }

  Expr cubic(Expr distance) const {
    double a = o_.cubic_a;
    Expr d = ir::unary(Op::abs, distance), d2 = ir::mul(d, d), d3 = ir::mul(d2, d);
    Expr near = ir::add(ir::sub(ir::mul(f(a + 2), d3), ir::mul(f(a + 3), d2)), f(1));
    Expr far =
        ir::sub(ir::add(ir::sub(ir::mul(f(a), d3), ir::mul(f(5 * a), d2)), ir::mul(f(8 * a), d)), f(4 * a));
    Expr zero = f(0.0);
    return ir::where(ir::binary(Op::less_equal, d, f(1)), near,
                     ir::where(ir::binary(Op::less, d, f(2)), far, zero));
  }

  ir::Context& c_;
  const ResizeOptions& o_;
  const AxisPlan& a_;
  SymInt i_;
  DType type_; ///< of coordinates and weights
};

/// Where one axis reads and with which weights: [taps, out], computed once for all rows.
struct AxisTables {
  TensorBox index, weight; ///< i32, and the type of the coordinates; weight is not defined for nearest
};

AxisTables tables_of(OpContext& ctx, const ResizeOptions& o, const AxisPlan& axis, DType type) {
  auto sampler = [&](SymInt i) { return AxisSampler(ctx.c, o, axis, i, type); };
  const int64_t taps = sampler(ctx.c.var(1)).taps();
  const SymInts sizes{SymInt(taps), axis.out};
  AxisTables t;
  t.index = generate(ctx, DType::i32, sizes, [&](std::span<const SymInt> at) {
    return ctx.c.cast(sampler(at[1]).index(at[0]), DType::i32);
  });
  realize(ctx, t.index, "read for every row");
  if (!sampler(ctx.c.var(1)).weighted()) return t;
  t.weight =
      generate(ctx, type, sizes, [&](std::span<const SymInt> at) { return sampler(at[1]).weight(at[0]); });
  if (sampler(ctx.c.var(1)).normalised()) {
    realize(ctx, t.weight, "summed up");
    const SymInt place[] = {ctx.c.rvar(0), ctx.c.var(0)}, column = ctx.c.var(1);
    TensorBox sum = ir::make_reduction(ctx.program, ReduceOp::sum, type, {axis.out}, {SymInt(taps)},
                                       t.weight.load(ctx.program, place));
    Expr w = t.weight.load(ctx.program, loop_vars(ctx.c, 2));
    t.weight = ir::make_pointwise(ctx.program, type, sizes, ir::div(w, sum.load(ctx.program, {&column, 1})));
  }
  realize(ctx, t.weight, "read for every row");
  return t;
}

constexpr int64_t kUnrolledTaps = 4; ///< more are a loop

TensorBox resample(OpContext& ctx, const TensorBox& x, const std::vector<AxisPlan>& axes,
                   const ResizeOptions& o) {
  SymInts result;
  for (const AxisPlan& a : axes) result.push_back(a.out);
  if (std::any_of(result.begin(), result.end(), [](SymInt n) { return n.is(0); }))
    return full(ctx, x.dtype(), result, 0);
  // One axis at a time: intermediate results are small for upsampling and the taps stay few.
  TensorBox y = x;
  DType type = x.dtype();
  Expr outside = nullptr;
  bool nearest = o.mode == "nearest";
  DType computed = type == DType::f64 && !nearest ? DType::f64 : DType::f32;
  for (int k = 0; k < x.rank(); ++k) {
    SymInts at = loop_vars(ctx.c, x.rank());
    AxisSampler sampler(ctx.c, o, axes[k], at[k], computed);
    if (sampler.is_identity()) continue;
    if (o.coordinates == "tf_crop_and_resize") {
      Expr beyond = sampler.outside();
      outside = outside ? ir::binary(Op::logical_or, outside, beyond) : beyond;
    }
    SymInts sizes = y.sizes();
    sizes[k] = axes[k].out;
    ctx.program.add_check(axes[k].in - ir::min(axes[k].out, 1), false,
                          fmt::format("Resize: axis {} is empty and cannot be enlarged", k));
    bool last = true;
    for (int j = k + 1; j < x.rank(); ++j) last &= ir::provably_equal(axes[j].in, axes[j].out);
    DType stored = nearest || last ? type : computed;
    if (auto exact = sampler.exact()) {
      SymInts place = at;
      place[k] = *exact;
      y = ir::make_pointwise(ctx.program, type, sizes, y.load(ctx.program, place));
      continue;
    }
    const int64_t taps = sampler.taps();
    AxisTables tables = tables_of(ctx, o, axes[k], computed);
    if (!nearest) realize_if_repeated(ctx.program, y, sizes);
    if (taps > 2) realize(ctx, y, "read by several elements of a resized axis");
    auto tap = [&](SymInt t) {
      const SymInt entry[] = {t, at[k]};
      SymInts place = at;
      place[k] =
          ctx.c.indirect(ctx.c.cast(tables.index.load(ctx.program, entry), DType::i64), axes[k].in, false);
      Expr v = y.load(ctx.program, place);
      if (!tables.weight.defined()) return v;
      return ir::mul(to_compute(v, computed), tables.weight.load(ctx.program, entry));
    };
    Expr sum = nullptr;
    if (taps <= kUnrolledTaps)
      for (int64_t t = 0; t < taps; ++t) sum = sum ? ir::add(sum, tap(t)) : tap(t);
    else
      sum =
          ir::make_reduction(ctx.program, ReduceOp::sum, computed, sizes, {SymInt(taps)}, tap(ctx.c.rvar(0)))
              .load(ctx.program, at);
    y = ir::make_pointwise(ctx.program, stored, sizes, nearest ? sum : to_compute(sum, stored));
  }
  if (y.dtype() != type) y = convert(ctx, y, type);
  if (!outside) return y;
  Expr v = y.load(ctx.program, loop_vars(ctx.c, x.rank()));
  return ir::make_pointwise(ctx.program, type, y.sizes(), ir::where(outside, number(v, o.extrapolation), v));
}

std::vector<double> floats_of(OpContext& ctx, int input, const char* what) {
  if (!ctx.constant(input) && ctx.known_tensor(input))
    ask_for_sizes(fmt::format("{} (input {}) depends on a dynamic dimension", what, input));
  auto t = ctx.constant_or_throw(input, what);
  std::vector<double> v;
  for (int64_t i = 0; i < t->numel(); ++i) v.push_back(element_as_double(*t, i));
  return v;
}

AxisPlan scaled(SymInt in, double scale) {
  AxisPlan a;
  a.in = in;
  a.scale = scale;
  a.scale_given = true;
  TBX_MODEL(scale > 0 && scale < 1e9, "a scale is {}", scale);
  if (in.is_constant()) {
    // In f32, as ONNX shape inference has it: 10 * 0.7 is 7.
    float out = std::floor(static_cast<float>(in.constant()) * static_cast<float>(scale));
    TBX_MODEL(out < static_cast<float>(ir::kMaxSize), "scale {} of an axis of size {}", scale, in.constant());
    a.out = static_cast<int64_t>(out);
  } else if (scale == std::floor(scale)) {
    a.out = in * SymInt(static_cast<int64_t>(scale));
  } else if (1 / scale == std::floor(1 / scale)) {
    a.out = ir::floordiv(in, static_cast<int64_t>(1 / scale));
  } else {
    ask_for_sizes(fmt::format("scale {} of a dynamic axis: only whole factors and their inverses", scale));
  }
  return a;
}

Values resize(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int rank = x.rank();
  bool old = ctx.opset() < 11;
  ResizeOptions o;
  o.mode = ctx.attr_string("mode", "nearest");
  if (o.mode == "bilinear" || o.mode == "trilinear") o.mode = "linear";
  TBX_MODEL(o.mode == "nearest" || o.mode == "linear" || o.mode == "cubic", "unknown mode '{}'", o.mode);
  // Opset 10 has no coordinate modes: it is asymmetric and rounds down.
  o.coordinates = ctx.attr_string("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
  o.nearest = ctx.attr_string("nearest_mode", old ? "floor" : "round_prefer_floor");
  o.policy = ctx.attr_string("keep_aspect_ratio_policy", "stretch");
  o.cubic_a = ctx.attr_float("cubic_coeff_a", -0.75f);
  o.extrapolation = ctx.attr_float("extrapolation_value", 0);
  o.exclude_outside = ctx.attr_int("exclude_outside", 0) != 0;
  o.antialias = ctx.attr_int("antialias", 0) != 0;

  std::vector<int> axes(rank);
  std::iota(axes.begin(), axes.end(), 0);
  if (ctx.has_attr("axes")) {
    axes.clear();
    for (int64_t a : ctx.attr_ints("axes")) axes.push_back(ctx.axis(a, rank));
  }
  std::vector<AxisPlan> plans(rank);
  for (int k = 0; k < rank; ++k) plans[k].in = plans[k].out = x.sizes()[k];
  int scales = old ? 1 : 2, sizes = 3;
  bool by_sizes = !old && ctx.has(sizes) && !(ctx.known(sizes) && ctx.known(sizes)->empty());
  if (by_sizes) {
    SymInts wanted = ctx.known_or_throw(sizes, "sizes");
    TBX_MODEL(wanted.size() == axes.size(), "{} sizes for {} axes", wanted.size(), axes.size());
    double common = 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      AxisPlan& a = plans[axes[i]];
      a.out = wanted[i];
      a.scale_known = a.in.is_constant() && a.out.is_constant();
      TBX_MODEL(!a.out.is_constant() || a.out.constant() >= 0, "axis {} would get the size {}", axes[i],
                a.out.constant());
      a.scale = !a.scale_known ? 0
                : a.in.is(0)   ? 1
                               : static_cast<double>(a.out.constant()) / static_cast<double>(a.in.constant());
      bool larger = o.policy == "not_smaller";
      if (i == 0 || (larger ? a.scale > common : a.scale < common)) common = a.scale;
    }
    if (o.policy != "stretch") {
      for (int k : axes) {
        if (!plans[k].scale_known)
          ask_for_sizes(fmt::format("keep_aspect_ratio_policy '{}' with dynamic sizes", o.policy));
        const double size = common * static_cast<double>(plans[k].in.constant());
        TBX_MODEL(size < static_cast<double>(ir::kMaxSize), "axis {} would get the size {}", k, size);
        plans[k].scale = common;
        plans[k].out = static_cast<int64_t>(std::nearbyint(size));
      }
    }
  } else {
    std::vector<double> s = floats_of(ctx, scales, "scales");
    TBX_MODEL(s.size() == axes.size(), "{} scales for {} axes", s.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) plans[axes[i]] = scaled(plans[axes[i]].in, s[i]);
  }
  if (o.coordinates == "tf_crop_and_resize") {
    std::vector<double> roi = floats_of(ctx, 1, "roi");
    TBX_MODEL(roi.size() == 2 * axes.size(), "{} roi values for {} axes", roi.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      plans[axes[i]].roi_start = roi[i];
      plans[axes[i]].roi_end = roi[axes.size() + i];
    }
  }
  return {resample(ctx, x, plans, o)};
}

/// Upsample: scales as attributes (opset 1 height/width, 7) or input (9); asymmetric, rounding down.
Values upsample(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  ResizeOptions o;
  o.mode = ctx.attr_string("mode", "nearest");
  if (o.mode == "bilinear") o.mode = "linear";
  o.coordinates = "asymmetric";
  o.nearest = "floor";
  std::vector<double> scales;
  if (ctx.opset() >= 9) {
    scales = floats_of(ctx, 1, "scales");
  } else if (ctx.opset() >= 7) {
    const std::vector<float> given = ctx.attr_floats("scales");
    scales.assign(given.begin(), given.end());
  } else {
    scales = {1, 1, ctx.attr_float("height_scale", 1), ctx.attr_float("width_scale", 1)};
  }
  TBX_MODEL(static_cast<int>(scales.size()) == x.rank(), "{} scales for an input of rank {}", scales.size(),
            x.rank());
  std::vector<AxisPlan> plans;
  plans.reserve(scales.size());
  for (int k = 0; k < x.rank(); ++k) plans.push_back(scaled(x.sizes()[k], scales[k]));
  return {resample(ctx, x, plans, o)};
}

} // namespace

void register_resize(Registry& r) {
  r.add("Resize", since(10), resize);
  r.add("Upsample", since(1), upsample);
  r.narrow(Narrow::follows, {"Resize", "Upsample"});
  r.moves_where({"Resize", "Upsample"}, "mode", "nearest", "nearest");
  r.mark(Trait::half_follows, {"Resize"});
  r.need("Resize", 3, some());
}

} // namespace tbx::lowering
