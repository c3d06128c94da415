// com.microsoft pooling and reductions over 8-bit tensors, and its relatives of MaxPool.
#include <limits>
#include <numeric>

#include "lowering/ops/families.h"
#include "lowering/ops/microsoft/qlinear.h"
#include "lowering/ops/products.h"
#include "lowering/ops/window.h"

namespace tbx::lowering {

namespace {

using Values = std::vector<LoweredValue>;

void check_rank(const TensorBox& x) {
  TBX_MODEL(x.rank() >= 3, "the input has rank {}, expected at least 3", x.rank());
}

/// A real number to the nearest integer with the zero point added before rounding.
Expr quantized_at_once(Expr value, const Scaled& to, DType type) {
  Expr shifted = ir::add(ir::div(value, to.scale), to_compute(to.zero, DType::f32));
  return quantized(shifted, nullptr, type);
}

/// Means of dequantised values. Windows that reach over the border count whole with count_include_pad, even
/// beyond the padding.
Values qlinear_average_pool(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  check_rank(ctx.in(0));
  bool last = ctx.attr_int("channels_last", 0) != 0;
  TensorBox x = last ? channels_first(ctx, ctx.in(0)) : ctx.in(0);
  Scaled from = scaled(ctx, 1, 2, type), to = scaled(ctx, 3, 4, type);
  TensorBox real = map(ctx, DType::f32, x, [&](Expr e) { return dequantized(e, from); });
  Window w = read_window(ctx, std::span(x.sizes()).subspan(2));
  WindowAccess a = window_access(ctx, real, w);
  Expr value = window_read(ctx, real, a, ctx.c.constant(DType::f32, 0));
  TensorBox sum = ir::make_reduction(ctx.program, ReduceOp::sum, DType::f32, a.sizes, a.reduced, value);
  bool whole = ctx.attr_int("count_include_pad", 0) != 0 || !a.inside;
  Expr count = ctx.c.constant_int(DType::i64, 1);
  for (int k = 0; k < w.spatial(); ++k)
    count = ir::mul(count, whole ? ctx.c.constant_int(DType::i64, w.kernel[k])
                                 : window_coverage(ctx, w, k, x.sizes()[2 + k], false));
  Expr mean = ir::div(sum.load(ctx.program, loop_vars(ctx.c, x.rank())), to_compute(count, DType::f32));
  TensorBox y = ir::make_pointwise(ctx.program, type, a.sizes, quantized_at_once(mean, to, type));
  return {last ? channels_last(ctx, y) : y};
}

/// The exact sum in i32, scaled once.
Values qlinear_global_average_pool(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  check_rank(ctx.in(0));
  bool last = ctx.attr_int("channels_last", 0) != 0;
  TensorBox x = last ? channels_first(ctx, ctx.in(0)) : ctx.in(0);
  Scaled from = scaled(ctx, 1, 2, type), to = scaled(ctx, 3, 4, type);
  AxisReducer reduce(ctx, x.sizes(), axes_from(2, x.rank()));
  TensorBox sum = reduce(ReduceOp::sum, DType::i32, x,
                         [&](Expr e) { return ir::sub(to_compute(e, DType::i32), from.zero); });
  Expr factor = ir::div(from.scale, ir::mul(to.scale, size_as(ctx.c, reduce.count(), DType::f32)));
  TensorBox y = map(ctx, type, sum, [&](Expr e) {
    return quantized(ir::mul(to_compute(e, DType::f32), factor), to.zero, type);
  });
  return {last ? channels_last(ctx, y) : y};
}

/// The axes of attribute `axes`; all where it is empty.
std::vector<int> axes_of_attribute(OpContext& ctx, int rank) {
  std::vector<int64_t> axes = ctx.attr_ints("axes");
  return axes.empty() ? axes_from(0, rank) : ctx.axes(axes, rank);
}

/// Dequantised, averaged, quantised.
Values qlinear_reduce_mean(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  const TensorBox& x = ctx.in(0);
  Scaled from = scaled(ctx, 1, 2, type), to = scaled(ctx, 3, 4, type);
  AxisReducer reduce(ctx, x.sizes(), axes_of_attribute(ctx, x.rank()));
  TensorBox sum = reduce(ReduceOp::sum, DType::f32, x, [&](Expr e) { return dequantized(e, from); });
  TensorBox y = map(ctx, type, sum, [&](Expr e) {
    Expr mean = ir::div(e, size_as(ctx.c, reduce.count(), DType::f32));
    return quantized(ir::div(mean, to.scale), to.zero, type);
  });
  return {ctx.attr_int("keepdims", 1) ? y : reduce.drop(y)};
}

Values reduce_sum_integer(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  const TensorBox& x = ctx.in(0);
  DType wide = type == DType::i8 ? DType::i32 : DType::u32;
  AxisReducer reduce(ctx, x.sizes(), axes_of_attribute(ctx, x.rank()));
  TensorBox y = reduce(ReduceOp::sum, wide, x, [&](Expr e) { return to_compute(e, wide); });
  return {ctx.attr_int("keepdims", 1) ? y : reduce.drop(y)};
}

Values nhwc_max_pool(OpContext& ctx) {
  auto y = lower_as(ctx, "MaxPool", 12, {channels_first(ctx, ctx.in(0))}, ctx.node.attributes);
  return {channels_last(ctx, ctx.box(y[0]))};
}

/// For each position the last one up to it along the innermost axis whose mask is 0; -1: there is none. The
/// very first element of a plane of several dimensions is never masked.
TensorBox last_masked(OpContext& ctx, const TensorBox& mask) {
  const SymInts& sizes = mask.sizes();
  int rank = mask.rank();
  SymInts at = loop_vars(ctx.c, rank);
  Expr m = mask.load(ctx.program, at);
  Expr masked = ir::binary(Op::equal, m, number(m, 0));
  if (rank > 3) {
    SymInt flat = 0;
    for (int k = 2; k < rank; ++k) flat = flat * sizes[k] + at[k];
    Expr position = ctx.c.index(flat);
    masked = ir::binary(Op::logical_and, masked, ir::binary(Op::greater, position, number(position, 0)));
  }
  Expr here = ctx.c.index(at[rank - 1]);
  return ir::make_scan(ctx.program, ReduceOp::max, DType::i64, sizes, rank - 1, false, false,
                       ir::where(masked, here, number(here, -1)));
}

/// In each row of a window only the elements before the first masked one count. An empty window gives the
/// lowest float.
Values maxpool_with_mask(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  check_rank(x);
  TBX_MODEL(ctx.dtype(0) == DType::f32 && ctx.dtype(1) == DType::i32,
            "X and M are of types {} and {}, expected float and int32", name_of(ctx.dtype(0)),
            name_of(ctx.dtype(1)));
  TBX_MODEL(ctx.rank(1) == x.rank(), "M has rank {}, X has rank {}", ctx.rank(1), x.rank());
  TensorBox mask = ir::expand(ctx.program, last_masked(ctx, ctx.in(1)), x.sizes());
  Window w = read_window(ctx, std::span(x.sizes()).subspan(2));
  WindowAccess a = window_access(ctx, x, w);
  Expr lowest = ctx.c.constant(DType::f32, std::numeric_limits<float>::lowest());
  Expr value = window_read(ctx, x, a, lowest),
       stop = window_read(ctx, mask, a, ctx.c.constant_int(DType::i64, -1));
  int k = w.spatial() - 1;
  SymInt start = ctx.c.var(2 + k) * SymInt(w.strides[k]) - w.pads_begin[k];
  Expr counts = ir::binary(Op::less, stop, ctx.c.index(ir::max(start, 0)));
  counts = ir::binary(Op::logical_and, counts, ir::unary(Op::logical_not, ir::unary(Op::is_nan, value)));
  return {ir::make_reduction(ctx.program, ReduceOp::max, DType::f32, a.sizes, a.reduced,
                             ir::where(counts, value, lowest))};
}

} // namespace

void register_qlinear_pool(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("QLinearAveragePool", since(1), qlinear_average_pool, domain);
  r.add("QLinearGlobalAveragePool", since(1), qlinear_global_average_pool, domain);
  r.add("QLinearReduceMean", since(1), qlinear_reduce_mean, domain);
  r.add("ReduceSumInteger", since(1), reduce_sum_integer, domain);
  r.add("NhwcMaxPool", since(1), nhwc_max_pool, domain);
  r.add("MaxpoolWithMask", since(1), maxpool_with_mask, domain);
  r.type_from(0,
              {"QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearReduceMean", "NhwcMaxPool",
               "MaxpoolWithMask"},
              domain);
}

} // namespace tbx::lowering
