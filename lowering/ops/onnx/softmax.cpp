// Softmax, LogSoftmax and Hardmax: over one axis, or before opset 13 over all dimensions from an axis on.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

std::vector<int> softmax_axes(OpContext& ctx, int rank) {
  if (ctx.opset() >= 13) {
    if (rank == 0) return {};
    return {ctx.axis(ctx.attr_int("axis", -1), rank)};
  }
  // The input is seen as [d0*...*d(axis-1), d(axis)*...]; axis may equal the rank.
  int64_t axis = ctx.attr_int("axis", 1);
  if (axis < 0) axis += rank;
  TBX_MODEL(axis >= 0 && axis <= rank, "axis {} is out of range for rank {}", ctx.attr_int("axis", 1), rank);
  return axes_from(static_cast<int>(axis), rank);
}

struct Shifted {
  AxisReducer reduce;
  DType type;
  TensorBox minus_max; ///< x - max(x): exp of it cannot overflow
};

/// Where the exponentials of a softmax end: next to the smallest normal number. Beside the largest term,
/// which is 1, what lies below does not count, and many CPUs take far longer for subnormal
/// numbers. GPUs do not.
struct Least {
  double logarithm, share;
};

Least least_of(DType type) { return type == DType::f64 ? Least{-708, 1e-307} : Least{-87, 2e-38}; }

/// e^v for v of at most 0, at least e^logarithm.
Expr exp_of_shifted(Expr v, bool cuda) {
  if (cuda) return ir::unary(Op::exp, v);
  Expr least = number(v, least_of(v->dtype).logarithm);
  return ir::unary(Op::exp, ir::where(ir::binary(Op::less, v, least), least, v));
}

/// a / total; 0 where that is less than the least share.
Expr share_of(Expr a, Expr total, bool cuda) {
  // One division per row.
  Expr share = ir::mul(a, ir::div(number(total, 1), total));
  if (cuda) return share;
  Expr least = ir::mul(total, number(total, least_of(a->dtype).share));
  return ir::where(ir::binary(Op::less, a, least), number(a, 0), share);
}

Shifted shift_by_max(OpContext& ctx, const TensorBox& x) {
  AxisReducer reduce(ctx, x.sizes(), softmax_axes(ctx, x.rank()));
  DType type = compute_type(x.dtype());
  shared(ctx, x, 2);
  TensorBox greatest = reduce(ReduceOp::max, type, x);
  return {reduce, type, map(ctx, type, x, greatest, ir::sub)};
}

std::vector<LoweredValue> lower_softmax(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  Shifted s = shift_by_max(ctx, x);
  const bool cuda = ctx.program.target.cuda;
  TensorBox e = map(ctx, s.type, s.minus_max, [&](Expr v) { return exp_of_shifted(v, cuda); });
  shared(ctx, e, 2);
  TensorBox sum = s.reduce(ReduceOp::sum, s.type, e);
  return {map(ctx, x.dtype(), e, sum, [&](Expr a, Expr total) { return share_of(a, total, cuda); })};
}

std::vector<LoweredValue> lower_log_softmax(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  Shifted s = shift_by_max(ctx, x);
  TensorBox sum = s.reduce(ReduceOp::sum, s.type, s.minus_max,
                           [&](Expr v) { return exp_of_shifted(v, ctx.program.target.cuda); });
  TensorBox log = map(ctx, s.type, sum, [](Expr v) { return ir::unary(Op::log, v); });
  realize(ctx, log, "logarithm used by every element of its row");
  return {map(ctx, x.dtype(), s.minus_max, log, ir::sub)};
}

/// 1 at the first largest element (in row-major order of the axes), 0 elsewhere.
std::vector<LoweredValue> lower_hardmax(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  std::vector<int> axes = softmax_axes(ctx, x.rank());
  shared(ctx, x, 2);
  AxisReducer reduce(ctx, x.sizes(), axes);
  TensorBox first = ir::expand(ctx.program, reduce(ReduceOp::argmax, DType::i64, x), x.sizes());
  return {generate(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    SymInt position = 0;
    for (int a : axes) position = position * x.sizes()[a] + at[a];
    Expr hit = ir::binary(Op::equal, ctx.c.index(position), first.load(ctx.program, at));
    DType type = compute_type(x.dtype());
    return ir::where(hit, ctx.c.constant(type, 1), ctx.c.constant(type, 0));
  })};
}

} // namespace

void register_softmax(Registry& r) {
  r.add("Softmax", since(1), lower_softmax);
  r.add("LogSoftmax", since(1), lower_log_softmax);
  r.add("Hardmax", since(1), lower_hardmax);
  r.narrow(Narrow::wide_inputs, {"Softmax"});
  r.mark(Trait::half_rows, {"Softmax"});
  r.mark(Trait::half_follows, {"LogSoftmax"});
}

} // namespace tbx::lowering
