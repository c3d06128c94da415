// Arithmetic: unary functions, binary operators with numpy broadcasting, and the variadic Max, Min, Sum,
// Mean.
#include <cmath>
#include <limits>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

/// Remainder with the sign of the divisor: numpy's mod, Python's %.
Expr floor_remainder(Expr a, Expr b) {
  if (!is_float(a->dtype)) return ir::binary(Op::floor_mod, a, b);
  Expr zero = number(a, 0), r = ir::binary(Op::fmod, a, b);
  Expr b_negative = ir::binary(Op::less, b, zero), r_negative = ir::binary(Op::less, r, zero);
  Expr signed_zero = ir::where(b_negative, number(a, -0.0), zero);
  Expr moved = ir::where(ir::binary(Op::logical_xor, r_negative, b_negative), ir::add(r, b), r);
  return ir::where(ir::binary(Op::equal, r, zero), signed_zero, moved);
}

std::vector<LoweredValue> lower_mod(OpContext& ctx) {
  bool truncate = ctx.attr_int("fmod", 0) != 0;
  return {map(ctx, ctx.in(0).dtype(), ctx.in(0), legacy_operand(ctx),
              [&](Expr a, Expr b) { return truncate ? ir::binary(Op::fmod, a, b) : floor_remainder(a, b); })};
}

/// x to a constant integer power by repeated squaring.
Expr integer_power(Expr x, int64_t n) {
  if (n < 0) return ir::div(number(x, 1), integer_power(x, -n));
  Expr out = nullptr;
  for (Expr square = x; n > 0; n /= 2) {
    if (n % 2) out = out ? ir::mul(out, square) : square;
    if (n > 1) square = ir::mul(square, square);
  }
  return out ? out : number(x, 1);
}

/// The exponent, when it is one constant for all elements.
std::optional<double> constant_exponent(const OpContext& ctx) {
  auto t = ctx.constant(1);
  if (!t || t->numel() != 1 || t->dtype == DType::string || is_complex(t->dtype)) return std::nullopt;
  return element_as_double(*t, 0);
}

Expr power(Expr x, double n) {
  if (std::abs(n) <= 3 && n == std::floor(n)) return integer_power(x, static_cast<int64_t>(n));
  if (n == 0.5) { // pow(-0, 0.5) = +0 and pow(-inf, 0.5) = +inf, unlike sqrt
    double inf = std::numeric_limits<double>::infinity();
    Expr root = ir::add(ir::unary(Op::sqrt, x), number(x, 0));
    return ir::where(ir::binary(Op::equal, x, number(x, -inf)), number(x, inf), root);
  }
  return ir::binary(Op::pow, x, number(x, n));
}

/// The result has the type of the base, whatever the exponent's.
std::vector<LoweredValue> lower_pow(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  auto exponent = constant_exponent(ctx);
  if (exponent && is_float(x.dtype()) && ctx.rank(1) <= x.rank())
    return {map(ctx, x.dtype(), x, [&](Expr e) { return power(e, *exponent); })};
  TensorBox y = ctx.in(1);
  if (ctx.opset() < 7) y = legacy_operand(ctx);
  return {map(ctx, x.dtype(), x, y, [&](Expr a, Expr b) {
    bool exact = !is_float(a->dtype) && !is_float(b->dtype);
    DType type = exact || is_float(a->dtype) ? a->dtype : DType::f64;
    Expr p = ir::binary(Op::pow, to_compute(a, type), to_compute(b, type));
    return to_compute(p, x.dtype());
  })};
}

/// Max, Min, Sum: one or more operands of one type.
LowerFn variadic(Op op) {
  return [op](OpContext& ctx) -> std::vector<LoweredValue> {
    std::vector<TensorBox> xs;
    xs.reserve(static_cast<size_t>(ctx.num_inputs()));
    for (int i = 0; i < ctx.num_inputs(); ++i) xs.push_back(ctx.in(i));
    TBX_MODEL(!xs.empty(), "at least one input is needed");
    DType type = xs[0].dtype();
    for (const TensorBox& x : xs)
      TBX_MODEL(x.dtype() == type, "operands are of types {} and {}", name_of(type), name_of(x.dtype()));
    return {map(ctx, type, xs, [op](std::span<const Expr> v) {
      Expr out = v[0];
      for (Expr e : v.subspan(1)) out = ir::binary(op, out, e);
      return out;
    })};
  };
}

std::vector<LoweredValue> lower_mean(OpContext& ctx) {
  LoweredValue sum = variadic(Op::add)(ctx)[0];
  int n = ctx.num_inputs();
  return {map(ctx, sum.tensor.dtype(), sum.tensor, [n](Expr e) { return ir::div(e, number(e, n)); })};
}

Expr reciprocal(Expr x) { return ir::unary(Op::reciprocal, x); }

/// Also of integers: in float and cut, as onnx.reference does.
std::vector<LoweredValue> lower_erf(OpContext& ctx) {
  DType type = ctx.dtype(0);
  return {map(ctx, type, ctx.in(0), [type](Expr x) {
    if (is_float(type)) return ir::unary(Op::erf, x);
    return to_compute(ir::unary(Op::erf, to_compute(x, DType::f32)), type);
  })};
}

} // namespace

void register_math(Registry& r) {
  struct Unary {
    const char* name;
    int first;
    Op op;
  };
  constexpr Unary unary[] = {
      {"Abs", 1, Op::abs},           {"Neg", 1, Op::neg},     {"Sign", 9, Op::sign},
      {"Sqrt", 1, Op::sqrt},         {"Exp", 1, Op::exp},     {"Log", 1, Op::log},
      {"Ceil", 1, Op::ceil},         {"Floor", 1, Op::floor}, {"Sin", 7, Op::sin},
      {"Round", 11, Op::round_even}, {"Cos", 7, Op::cos},     {"Tan", 7, Op::tan},
      {"Asin", 7, Op::asin},         {"Acos", 7, Op::acos},   {"Atan", 7, Op::atan},
      {"Sinh", 9, Op::sinh},         {"Cosh", 9, Op::cosh},   {"Tanh", 1, Op::tanh},
      {"Asinh", 9, Op::asinh},       {"Acosh", 9, Op::acosh}, {"Atanh", 9, Op::atanh},
  };
  for (const Unary& u : unary) r.add(u.name, since(u.first), pointwise(u.op));
  r.add("Reciprocal", since(1), pointwise(reciprocal));
  r.add("Erf", since(9), lower_erf);

  r.add("Add", since(1), pointwise2(ir::add));
  r.add("Sub", since(1), pointwise2(ir::sub));
  r.add("Mul", since(1), pointwise2(ir::mul));
  r.add("Div", since(1), pointwise2(ir::div));
  r.add("Mod", since(10), lower_mod);
  r.add("Pow", since(1), lower_pow);

  r.add("Max", since(1), variadic(Op::max));
  r.add("Min", since(1), variadic(Op::min));
  r.add("Sum", since(1), variadic(Op::add));
  r.add("Mean", since(1), lower_mean);
  // Not among them: what makes large differences of small ones (Exp, Log, Pow, Sin, Mod ...).
  r.narrow(Narrow::follows, {"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Abs", "Neg", "Sqrt",
                             "Reciprocal", "Erf", "Tanh"});
  r.mark(Trait::elementwise,
         {"Abs", "Acos",       "Acosh", "Add",   "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh",
          "Div", "Erf",        "Exp",   "Floor", "Log",  "Max",   "Mean", "Min",   "Mod",  "Mul", "Neg",
          "Pow", "Reciprocal", "Round", "Sign",  "Sin",  "Sinh",  "Sqrt", "Sub",   "Sum",  "Tan", "Tanh"});
  r.mark(Trait::no_gradient, {"Ceil", "Floor", "Round", "Sign"});
  r.mark(Trait::takes_quotients, {"Ceil", "Floor", "Neg"});
  r.mark(Trait::keeps_first, {"Min", "Max"});
  r.mark(Trait::keeps_others, {"Min", "Max"});
  r.mark(Trait::half_follows, {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "Neg", "Abs",
                               "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Tanh", "Sin", "Cos"});
  for (const char* op : {"Div", "Mod"}) r.need(op, 1, some());
}

} // namespace tbx::lowering
