// Reductions: Reduce*, ArgMax, ArgMin. Axes are an attribute or an input; an empty set gives the identity.
#include <limits>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

struct ReduceForm {
  ReduceOp op = ReduceOp::sum;
  UnaryBody before, after; ///< on each element, on the result; in the type of accumulation
  bool in_float = false;   ///< integers are computed in f64 (roots, logarithms)
  bool mean = false, log_sum_exp = false;
};

/// The axes to reduce, sorted. Empty: none (noop_with_empty_axes).
std::vector<int> reduced_axes(OpContext& ctx, int rank, int opset_of_input) {
  std::vector<int64_t> axes;
  if (ctx.opset() < opset_of_input)
    axes = ctx.attr_ints("axes");
  else if (ctx.has(1))
    axes = ctx.ints_or_throw(1, "axes");
  if (!axes.empty()) return ctx.axes(axes, rank);
  return ctx.attr_int("noop_with_empty_axes", 0) ? std::vector<int>{} : axes_from(0, rank);
}

/// Type in which a reduction of `type` accumulates; results are stored in `type` again.
DType accumulation_type(const ReduceForm& form, DType type) {
  if (is_float(type)) return compute_type(type);
  if (form.in_float) return DType::f64;
  return !form.mean ? type : type == DType::u64 ? DType::u64 : DType::i64;
}

/// log(sum(exp(x))) relative to the largest element, which is left at 0 where it is not finite.
TensorBox log_sum_exp(OpContext& ctx, const AxisReducer& reduce, const TensorBox& x, DType acc) {
  ir::Program& p = ctx.program;
  shared(ctx, x, 2);
  auto wide = [&](Expr e) { return to_compute(e, acc); };
  TensorBox greatest = reduce(ReduceOp::max, acc, x, wide);
  TensorBox shift = map(ctx, acc, greatest, [](Expr m) {
    Expr finite =
        ir::binary(Op::less, ir::unary(Op::abs, m), number(m, std::numeric_limits<double>::infinity()));
    return ir::where(finite, m, number(m, 0));
  });
  TensorBox full_shift = ir::expand(p, shift, x.sizes());
  TensorBox sum = reduce(ReduceOp::sum, acc, [&](std::span<const SymInt> at) {
    return ir::unary(Op::exp, ir::sub(wide(x.load(p, at)), full_shift.load(p, at)));
  });
  return map(ctx, x.dtype(), sum, shift,
             [&](Expr s, Expr m) { return to_compute(ir::add(ir::unary(Op::log, s), m), x.dtype()); });
}

TensorBox reduce_over(OpContext& ctx, const ReduceForm& form, const TensorBox& x,
                      const std::vector<int>& axes) {
  DType acc = accumulation_type(form, x.dtype());
  AxisReducer reduce(ctx, x.sizes(), axes);
  if (form.log_sum_exp) return log_sum_exp(ctx, reduce, x, acc);
  ReduceOp op = form.op;
  if (acc == DType::boolean) op = op == ReduceOp::max ? ReduceOp::any : ReduceOp::all;
  auto before = [&](Expr e) { return form.before ? form.before(to_compute(e, acc)) : to_compute(e, acc); };
  bool finish = form.mean || form.after;
  DType stored = finish ? acc : x.dtype(); // f32 sums of narrow floats are rounded once, at the end
  TensorBox sum;
  if (axes.empty()) {
    sum = map(ctx, stored, x, before);
  } else if (reduce.count().is(1)) {
    // One element: the value itself. Only a dimension known to be 1 is seen here.
    sum = map(ctx, stored, x, before);
  } else {
    sum = reduce(op, stored, x, before);
  }
  if (!finish) return sum;
  return map(ctx, x.dtype(), sum, [&](Expr e) {
    if (form.mean) e = ir::div(e, size_as(ctx.c, reduce.count(), acc));
    if (form.after) e = form.after(e);
    return to_compute(e, x.dtype());
  });
}

LowerFn reduction(const ReduceForm& form, int opset_of_input = 18) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    const TensorBox& x = ctx.in(0);
    std::vector<int> axes = reduced_axes(ctx, x.rank(), opset_of_input);
    TensorBox out = reduce_over(ctx, form, x, axes);
    bool keep = ctx.attr_int("keepdims", 1) != 0;
    return {keep ? out : ir::squeeze(ctx.program, out, axes)};
  };
}

LowerFn arg_reduction(ReduceOp first, ReduceOp last) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    const TensorBox& x = ctx.in(0);
    std::vector<int> axes;
    if (x.rank() > 0) axes.push_back(ctx.axis(ctx.attr_int("axis", 0), x.rank()));
    AxisReducer reduce(ctx, x.sizes(), axes);
    TBX_MODEL(!reduce.count().is(0), "no elements along the axis");
    SymInt results = 1; // none of which needs an element
    for (int k = 0; k < x.rank(); ++k)
      if (axes.empty() || k != axes[0]) results = ir::min(results, x.sizes()[k]);
    ctx.program.add_check(ir::max(reduce.count() - SymInt(1), SymInt(0) - results), false,
                          "no elements along the axis");
    TensorBox out = reduce(ctx.attr_int("select_last_index", 0) ? last : first, DType::i64, x);
    return {ctx.attr_int("keepdims", 1) ? out : reduce.drop(out)};
  };
}

Expr square(Expr x) { return ir::mul(x, x); }
UnaryBody apply(Op op) {
  return [op](Expr e) { return ir::unary(op, e); };
}

} // namespace

void register_reduce(Registry& r) {
  r.add("ReduceSum", since(1), reduction({ReduceOp::sum}, 13));
  r.add("ReduceProd", since(1), reduction({ReduceOp::prod}));
  r.add("ReduceMax", since(1), reduction({ReduceOp::max}));
  r.add("ReduceMin", since(1), reduction({ReduceOp::min}));
  r.add("ReduceMean", since(1), reduction({.mean = true}));
  r.add("ReduceL1", since(1), reduction({.before = apply(Op::abs)}));
  r.add("ReduceL2", since(1), reduction({.before = square, .after = apply(Op::sqrt), .in_float = true}));
  r.add("ReduceSumSquare", since(1), reduction({.before = square}));
  r.add("ReduceLogSum", since(1), reduction({.after = apply(Op::log), .in_float = true}));
  r.add("ReduceLogSumExp", since(1), reduction({.in_float = true, .log_sum_exp = true}));
  r.add("ArgMax", since(1), arg_reduction(ReduceOp::argmax, ReduceOp::argmax_last));
  r.add("ArgMin", since(1), arg_reduction(ReduceOp::argmin, ReduceOp::argmin_last));
  r.mark(Trait::no_gradient, {"ArgMax", "ArgMin"});
  // Sums are float32; their results may be as long as the reduced axis times larger, which a float16 has no
  // room for, so that they stay as they are.
  r.narrow(Narrow::follows, {"ReduceMax", "ReduceMin", "ReduceMean"});
  r.mark(Trait::keeps_first, {"ReduceMax", "ReduceMin"});
  r.mark(Trait::half_follows,
         {"ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceL2"});
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
                         "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"})
    r.need(op, 1, axis_of_input());
  // What is summed counts: a mask, of which all is let through.
  r.need("ReduceSum", 0, between(1, 2));
}

} // namespace tbx::lowering
