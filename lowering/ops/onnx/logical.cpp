// Comparisons, logic, bits and selection.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

LowerFn compare(Op op) {
  return comparison([op](Expr a, Expr b) { return ir::binary(op, a, b); });
}
LowerFn same_type(Op op) {
  return pointwise2([op](Expr a, Expr b) { return ir::binary(op, a, b); });
}

std::vector<LoweredValue> lower_is_nan(OpContext& ctx) {
  return {map(ctx, DType::boolean, ctx.in(0), [](Expr x) { return ir::unary(Op::is_nan, x); })};
}

std::vector<LoweredValue> lower_is_inf(OpContext& ctx) {
  bool positive = ctx.attr_int("detect_positive", 1) != 0, negative = ctx.attr_int("detect_negative", 1) != 0;
  return {map(ctx, DType::boolean, ctx.in(0), [&](Expr x) {
    ir::Context& c = ctx.c;
    if (!positive && !negative) return c.boolean(false);
    Expr inf = ir::unary(Op::is_inf, x);
    if (positive && negative) return inf;
    Expr side = ir::binary(positive ? Op::greater : Op::less, x, number(x, 0));
    return ir::binary(Op::logical_and, inf, side);
  })};
}

std::vector<LoweredValue> lower_where(OpContext& ctx) {
  TBX_MODEL(ctx.dtype(1) == ctx.dtype(2), "branches are of types {} and {}", name_of(ctx.dtype(1)),
            name_of(ctx.dtype(2)));
  const TensorBox xs[] = {ctx.in(0), ctx.in(1), ctx.in(2)};
  return {map(ctx, ctx.dtype(1), xs, [](std::span<const Expr> v) { return ir::where(v[0], v[1], v[2]); })};
}

/// Shifts by a negative amount or by the width and more leave the sign extension alone.
std::vector<LoweredValue> lower_bit_shift(OpContext& ctx) {
  std::string direction = ctx.attr_string("direction", "");
  TBX_MODEL(direction == "LEFT" || direction == "RIGHT", "direction is '{}', not LEFT or RIGHT", direction);
  bool left = direction == "LEFT";
  return {map(ctx, ctx.dtype(0), ctx.in(0), ctx.in(1), [&](Expr x, Expr n) {
    Expr shifted = ir::binary(left ? Op::shift_left : Op::shift_right, x, n);
    if (!is_signed(x->dtype)) return shifted;
    Expr zero = number(x, 0), width = number(x, bits_of(x->dtype));
    Expr fill = left ? zero : ir::where(ir::binary(Op::less, x, zero), number(x, -1), zero);
    Expr out =
        ir::binary(Op::logical_or, ir::binary(Op::less, n, zero), ir::binary(Op::greater_equal, n, width));
    return ir::where(out, fill, shifted);
  })};
}

} // namespace

void register_logical(Registry& r) {
  r.add("Equal", since(1), compare(Op::equal));
  r.add("Greater", since(1), compare(Op::greater));
  r.add("Less", since(1), compare(Op::less));
  r.add("GreaterOrEqual", since(12), compare(Op::greater_equal));
  r.add("LessOrEqual", since(12), compare(Op::less_equal));
  r.add("And", since(1), compare(Op::logical_and));
  r.add("Or", since(1), compare(Op::logical_or));
  r.add("Xor", since(1), compare(Op::logical_xor));
  r.add("Not", since(1), pointwise(Op::logical_not));
  r.add("IsNaN", since(9), lower_is_nan);
  r.add("IsInf", since(10), lower_is_inf);
  r.add("Where", since(9), lower_where);
  r.add("BitwiseAnd", since(18), same_type(Op::bitwise_and));
  r.add("BitwiseOr", since(18), same_type(Op::bitwise_or));
  r.add("BitwiseXor", since(18), same_type(Op::bitwise_xor));
  r.add("BitwiseNot", since(18), pointwise(Op::bitwise_not));
  r.add("BitShift", since(11), lower_bit_shift);
  r.narrow(Narrow::follows, {"Where"});
  r.mark(Trait::elementwise,
         {"And", "BitShift", "Equal", "Greater", "IsInf", "IsNaN", "Less", "Not", "Or", "Where", "Xor",
          "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "GreaterOrEqual", "LessOrEqual"});
  r.mark(Trait::moves, {"Where"});
  r.mark(Trait::compares, {"Equal"});
  r.mark(Trait::no_gradient,
         {"Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not"});
  r.mark(Trait::keeps_others, {"Where"});
  r.mark(Trait::half_follows, {"Where", "IsNaN"});
}

} // namespace tbx::lowering
