// Pooling as reductions over windows: MaxPool, AveragePool, LpPool and their global forms.
#include <algorithm>
#include <numeric>

#include "lowering/ops/families.h"
#include "lowering/ops/window.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

void check_rank(const TensorBox& x) {
  TBX_MODEL(x.rank() >= 3, "the input has rank {}, expected [N, C, spatial...]", x.rank());
}

Expr lowest(ir::Context& c, DType type) {
  DType t = compute_type(type);
  if (is_float(t)) return c.constant(t, -std::numeric_limits<double>::infinity());
  if (!is_signed(t)) return c.constant_int(t, 0);
  return c.constant_int(t, t == DType::i8    ? INT8_MIN
                           : t == DType::i16 ? INT16_MIN
                           : t == DType::i32 ? INT32_MIN
                                             : INT64_MIN);
}

/// Windows of which one axis after the other takes less than half of the work.
bool pays_by_axis(const TensorBox& x, const Window& w) {
  SymInt out = 1, rest = 1;
  double whole = 1, by_axis = 0;
  for (int k = 0; k < w.spatial(); ++k) {
    if (x.sizes()[2 + k].is(0)) return false;
    rest = rest * x.sizes()[2 + k];
  }
  for (int k = 0; k < w.spatial(); ++k) {
    whole *= static_cast<double>(w.kernel[k]);
    rest = ir::floordiv(rest, x.sizes()[2 + k]);
    out = out * w.output_size(k, x.sizes()[2 + k]);
    by_axis += static_cast<double>(w.kernel[k]) * static_cast<double>(ir::size_hint(out * rest));
  }
  return w.spatial() > 1 && whole * static_cast<double>(ir::size_hint(out)) > 2 * by_axis;
}

/// The maximum or sum over windows, along one axis after the other. `outside` stands for what is not there.
TensorBox reduced_by_axis(OpContext& ctx, TensorBox x, const Window& w, ReduceOp op, DType type,
                          Expr outside) {
  for (int k = 0; k < w.spatial(); ++k) {
    Window one = w;
    for (int j = 0; j < w.spatial(); ++j) {
      if (j == k) continue;
      one.kernel[j] = one.strides[j] = one.dilations[j] = 1;
      one.pads_begin[j] = one.pads_end[j] = 0;
    }
    WindowAccess a = window_access(ctx, x, one);
    x = ir::make_reduction(ctx.program, op, type, a.sizes, a.reduced, window_read(ctx, x, a, outside));
  }
  return x;
}

Values max_pool(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  check_rank(x);
  Window w = read_window(ctx, std::span(x.sizes()).subspan(2));
  if (!ctx.wants(1) && pays_by_axis(x, w))
    return {reduced_by_axis(ctx, x, w, ReduceOp::max, x.dtype(), lowest(ctx.c, x.dtype()))};
  WindowAccess a = window_access(ctx, x, w);

  Expr value = window_read(ctx, x, a, lowest(ctx.c, x.dtype()));
  TensorBox y = ir::make_reduction(ctx.program, ReduceOp::max, x.dtype(), a.sizes, a.reduced, value);
  if (!ctx.wants(1)) return {y};
  // Position inside the window of the first maximum, then its flat index in the whole input.
  TensorBox best = ir::make_reduction(ctx.program, ReduceOp::argmax, DType::i64, a.sizes, a.reduced, value);
  SymInts at = loop_vars(ctx.c, x.rank());
  Expr window = best.load(ctx.program, at);
  bool column_major = ctx.attr_int("storage_order", 0) == 1;
  std::vector<Expr> position(w.spatial());
  Expr rest = window;
  for (int k = w.spatial(); k-- > 0;) {
    Expr kernel = ctx.c.constant_int(DType::i64, w.kernel[k]);
    Expr inside = k == 0 ? rest : ir::binary(Op::floor_mod, rest, kernel);
    rest = ir::div(rest, kernel);
    SymInt base = at[2 + k] * SymInt(w.strides[k]) - w.pads_begin[k];
    position[k] = ir::add(ir::mul(inside, ctx.c.constant_int(DType::i64, w.dilations[k])), ctx.c.index(base));
  }
  SymInt plane = 1;
  for (int k = 0; k < w.spatial(); ++k) plane = plane * x.sizes()[2 + k];
  Expr flat = ctx.c.index((at[0] * x.sizes()[1] + at[1]) * plane);
  SymInt step = 1;
  for (int i = 0; i < w.spatial(); ++i) {
    int k = column_major ? i : w.spatial() - 1 - i;
    flat = ir::add(flat, ir::mul(position[k], ctx.c.index(step)));
    step = step * x.sizes()[2 + k];
  }
  return {y, ir::make_pointwise(ctx.program, DType::i64, a.sizes, flat)};
}

Values average_pool(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  check_rank(x);
  Window w = read_window(ctx, std::span(x.sizes()).subspan(2));
  WindowAccess a = window_access(ctx, x, w);
  bool include_pad = ctx.attr_int("count_include_pad", 0) != 0;
  DType type = compute_type(x.dtype());
  const Expr zero = ctx.c.constant(type, 0);
  TensorBox sum = pays_by_axis(x, w) ? reduced_by_axis(ctx, x, w, ReduceOp::sum, type, zero)
                                     : ir::make_reduction(ctx.program, ReduceOp::sum, type, a.sizes,
                                                          a.reduced, window_read(ctx, x, a, zero));
  Expr total = sum.load(ctx.program, loop_vars(ctx.c, x.rank()));
  Expr count = nullptr;
  for (int k = 0; k < w.spatial(); ++k) {
    SymInt size = x.sizes()[2 + k];
    Expr n;
    bool whole = w.pads_begin[k].is(0) && w.pads_end[k].is(0) && !w.ceil_mode;
    if (whole || (include_pad && !w.ceil_mode)) {
      n = ctx.c.constant_int(DType::i64, w.kernel[k]);
    } else {
      n = window_coverage(ctx, w, k, size, include_pad);
    }
    count = count ? ir::mul(count, n) : n;
  }
  Expr mean = ir::div(total, ctx.c.cast(count, type));
  return {ir::make_pointwise(ctx.program, x.dtype(), a.sizes, mean)};
}

/// (sum |x|^p)^(1/p)
Expr power_of(Expr x, float p) {
  Expr a = ir::unary(Op::abs, x);
  if (p == 1) return a;
  if (p == 2) return ir::mul(x, x);
  return ir::binary(Op::pow, a, number(a, p));
}

Expr root_of(Expr x, float p) {
  if (p == 1) return x;
  if (p == 2) return ir::unary(Op::sqrt, x);
  return ir::binary(Op::pow, x, number(x, 1.0 / p));
}

float norm_of(OpContext& ctx) {
  // Opset 1 has a float, later ones an integer.
  float p = ctx.opset() < 2 ? ctx.attr_float("p", 2) : static_cast<float>(ctx.attr_int("p", 2));
  TBX_MODEL(p > 0, "p is {}", p);
  return p;
}

Values lp_pool(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  check_rank(x);
  float p = norm_of(ctx);
  Window w = read_window(ctx, std::span(x.sizes()).subspan(2));
  WindowAccess a = window_access(ctx, x, w);
  DType type = compute_type(x.dtype());
  Expr value = power_of(window_read(ctx, x, a, ctx.c.constant(type, 0)), p);
  TensorBox sum = ir::make_reduction(ctx.program, ReduceOp::sum, type, a.sizes, a.reduced, value);
  return {map(ctx, x.dtype(), sum, [p](Expr e) { return root_of(e, p); })};
}

std::vector<int> spatial_axes(OpContext& ctx) {
  check_rank(ctx.in(0));
  return axes_from(2, ctx.rank(0));
}

Values global_average_pool(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  AxisReducer reduce(ctx, x.sizes(), spatial_axes(ctx));
  TensorBox sum = reduce(ReduceOp::sum, compute_type(x.dtype()), x);
  SymInt count = reduce.count();
  return {map(ctx, x.dtype(), sum, [&](Expr e) { return ir::div(e, size_as(ctx.c, count, e->dtype)); })};
}

Values global_max_pool(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  return {AxisReducer(ctx, x.sizes(), spatial_axes(ctx))(ReduceOp::max, x.dtype(), x)};
}

Values global_lp_pool(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  float p = norm_of(ctx);
  AxisReducer reduce(ctx, x.sizes(), spatial_axes(ctx));
  TensorBox sum = reduce(ReduceOp::sum, compute_type(x.dtype()), x, [p](Expr e) { return power_of(e, p); });
  return {map(ctx, x.dtype(), sum, [p](Expr e) { return root_of(e, p); })};
}

} // namespace

void register_pool(Registry& r) {
  r.add("MaxPool", since(1), max_pool);
  r.add("AveragePool", since(1), average_pool);
  r.add("LpPool", since(1), lp_pool);
  r.add("GlobalAveragePool", since(1), global_average_pool);
  r.add("GlobalMaxPool", since(1), global_max_pool);
  r.add("GlobalLpPool", since(1), global_lp_pool);
  r.narrow(Narrow::follows, {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"});
  r.mark(Trait::half_follows, {"GlobalAveragePool", "GlobalMaxPool", "AveragePool", "MaxPool"});
}

} // namespace tbx::lowering
