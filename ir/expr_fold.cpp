#include "ir/expr_fold.h"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "ir/scalar_ops.h"

namespace tbx::ir {
namespace {

bool is_real(Expr e) { return e->dtype == DType::f32 || e->dtype == DType::f64; }
bool is_constant(Expr e) { return e->op == Op::constant; }

/// A constant of exactly this value (0.0 and -0.0 differ).
bool is(Expr e, double v) {
  if (!is_constant(e)) return false;
  if (is_real(e)) return std::bit_cast<uint64_t>(e->as_double()) == std::bit_cast<uint64_t>(v);
  return e->as_int() == static_cast<int64_t>(v);
}

Scalar scalar_of(Expr e) {
  if (is_real(e)) return {0, e->as_double()};
  return {e->as_int(), 0};
}

Expr from_scalar(Context& c, DType type, Scalar s) {
  bool real = type == DType::f32 || type == DType::f64;
  return real ? c.constant(type, s.f) : c.constant_int(type, s.i);
}

/// The SymInt behind an integer expression made of sizes and loop variables only.
std::optional<SymInt> symbolic(Expr e) {
  if (e->dtype != DType::i64) return std::nullopt;
  if (e->op == Op::index) return e->indices[0];
  if (e->op == Op::constant) return SymInt(e->as_int());
  return std::nullopt;
}

/// Index arithmetic is on mathematical integers: only what stays far from the wrap-around of i64 may become
/// some.
bool is_small(SymInt e) {
  constexpr int64_t kLimit = int64_t{1} << 61;
  Bounds b = bounds_of(e);
  return -kLimit < b.lo && b.hi < kLimit;
}

Expr fold_index_arithmetic(Context& c, Op op, SymInt x, SymInt y) {
  if (!is_small(x) || !is_small(y)) return nullptr;
  switch (op) {
  case Op::add: return c.index(x + y);
  case Op::sub: return c.index(x - y);
  case Op::mul: {
    if (!x.is_constant() && !y.is_constant()) return nullptr;
    Bounds a = bounds_of(x), b = bounds_of(y);
    double most = std::fmax(std::fabs(static_cast<double>(a.lo)), std::fabs(static_cast<double>(a.hi))) *
                  std::fmax(std::fabs(static_cast<double>(b.lo)), std::fabs(static_cast<double>(b.hi)));
    return most < 0x1p61 ? c.index(x * y) : nullptr;
  }
  case Op::min: return c.index(min(x, y));
  case Op::max: return c.index(max(x, y));
  case Op::floor_mod: return y.is_constant() && y.constant() > 0 ? c.index(mod(x, y)) : nullptr;
  // Division truncates, which is what floordiv does to numbers that are not negative.
  case Op::div:
    return y.is_constant() && y.constant() > 0 && provably_nonnegative(x) ? c.index(floordiv(x, y)) : nullptr;
  default: return nullptr;
  }
}

Expr fold_index_comparison(Context& c, Op op, SymInt x, SymInt y) {
  if (!is_small(x) || !is_small(y)) return nullptr;
  auto less = [](SymInt a, SymInt b) { return provably_less(a, b); };
  auto less_equal = [](SymInt a, SymInt b) { return provably_nonnegative(b - a); };
  auto decided = [&](bool yes, bool no) { return yes ? c.boolean(true) : no ? c.boolean(false) : nullptr; };
  switch (op) {
  case Op::less: return decided(less(x, y), less_equal(y, x));
  case Op::less_equal: return decided(less_equal(x, y), less(y, x));
  case Op::greater: return decided(less(y, x), less_equal(x, y));
  case Op::greater_equal: return decided(less_equal(y, x), less(x, y));
  case Op::equal: return decided(provably_equal(x, y), less(x, y) || less(y, x));
  case Op::not_equal: return decided(less(x, y) || less(y, x), provably_equal(x, y));
  default: return nullptr;
  }
}

/// The reciprocal of a power of two whose reciprocal is a normal number: dividing by it is multiplying,
/// exactly.
std::optional<double> exact_reciprocal(Expr e) {
  if (!is_constant(e) || !is_real(e)) return std::nullopt;
  int exponent;
  double m = std::frexp(e->as_double(), &exponent);
  int limit = e->dtype == DType::f32 ? 120 : 1000;
  if (std::fabs(m) != 0.5 || std::abs(exponent) > limit) return std::nullopt;
  return 1 / e->as_double();
}

/// `f(a, b)` or `f(b, a)`, for rules about one operand of a commutative operator.
template <class F> Expr either(Expr a, Expr b, F&& f) {
  Expr r = f(a, b);
  return r ? r : f(b, a);
}

Expr fold_arithmetic(Context& c, Op op, Expr a, Expr b) {
  bool real = is_real(a);
  switch (op) {
  // x + -0 is x for every x; x + 0 is not for x = -0.
  case Op::add: return either(a, b, [&](Expr x, Expr y) { return is(y, real ? -0.0 : 0) ? x : nullptr; });
  case Op::sub:
    if (is(b, 0)) return a;
    return !real && a == b ? c.constant_int(a->dtype, 0) : nullptr;
  case Op::mul:
    return either(a, b, [&](Expr x, Expr y) { return is(y, 1) ? x : !real && is(y, 0) ? y : nullptr; });
  case Op::div:
    if (is(b, 1)) return a;
    if (auto r = exact_reciprocal(b)) return c.binary(Op::mul, a, c.constant(a->dtype, *r));
    return nullptr;
  case Op::pow:
    if (is(b, 1)) return a;
    if (is(b, 2)) return c.binary(Op::mul, a, a);
    return nullptr;
  case Op::floor_mod:
  case Op::fmod: return !real && is(b, 1) ? c.constant_int(a->dtype, 0) : nullptr;
  case Op::min:
  case Op::max:
    if (a == b) return a;
    // max(max(x, y), y)
    return either(a, b, [&](Expr x, Expr y) {
      return x->op == op && (x->args[0] == y || x->args[1] == y) ? x : nullptr;
    });
  default: return nullptr;
  }
}

Expr fold_logic(Context& c, Op op, Expr a, Expr b) {
  bool boolean = a->dtype == DType::boolean;
  switch (op) {
  case Op::logical_and:
    if (a == b) return a;
    return either(a, b, [](Expr x, Expr y) { return is(y, 1) ? x : is(y, 0) ? y : nullptr; });
  case Op::logical_or:
    if (a == b) return a;
    return either(a, b, [](Expr x, Expr y) { return is(y, 0) ? x : is(y, 1) ? y : nullptr; });
  case Op::logical_xor:
    if (a == b) return c.boolean(false);
    return either(a, b, [&](Expr x, Expr y) {
      return is(y, 0) ? x : is(y, 1) ? c.unary(Op::logical_not, x) : nullptr;
    });
  case Op::equal:
  case Op::not_equal:
    if (a == b && !is_real(a)) return c.boolean(op == Op::equal);
    if (!boolean) return nullptr;
    return either(a, b, [&](Expr x, Expr y) {
      if (!is_constant(y)) return Expr{nullptr};
      return is(y, op == Op::equal) ? x : c.unary(Op::logical_not, x);
    });
  case Op::less:
  case Op::greater: return a == b && !is_real(a) ? c.boolean(false) : nullptr;
  case Op::less_equal:
  case Op::greater_equal: return a == b && !is_real(a) ? c.boolean(true) : nullptr;
  case Op::bitwise_and:
    if (a == b) return a;
    return either(a, b, [](Expr, Expr y) { return is(y, 0) ? y : nullptr; });
  case Op::bitwise_or:
    if (a == b) return a;
    return either(a, b, [](Expr x, Expr y) { return is(y, 0) ? x : nullptr; });
  case Op::bitwise_xor:
    if (a == b) return c.constant_int(a->dtype, 0);
    return either(a, b, [](Expr x, Expr y) { return is(y, 0) ? x : nullptr; });
  case Op::shift_left:
  case Op::shift_right: return is(b, 0) ? a : nullptr;
  default: return nullptr;
  }
}

/// Every value of `from` is a value of `to`.
bool widens(DType from, DType to) {
  if (from == DType::boolean) return true;
  if (to == DType::boolean) return false;
  if (is_float(from)) return is_float(to) && bits_of(to) >= bits_of(from);
  int value_bits = bits_of(from) - (is_signed(from) ? 1 : 0);
  if (is_float(to)) return value_bits <= (to == DType::f32 ? 24 : 53);
  if (is_signed(from) && !is_signed(to)) return false;
  return value_bits <= bits_of(to) - (is_signed(to) ? 1 : 0);
}

} // namespace

Expr fold_unary(Context& c, Op op, Expr a) {
  DType type = op == Op::is_nan || op == Op::is_inf || op == Op::logical_not ? DType::boolean : a->dtype;
  if (is_constant(a)) return from_scalar(c, type, apply_unary(op, a->dtype, scalar_of(a)));
  bool rounds = op == Op::ceil || op == Op::floor || op == Op::round_even || op == Op::trunc;
  if (!is_real(a)) {
    if (op == Op::is_nan || op == Op::is_inf) return c.boolean(false);
    if (rounds) return a;
  } else if (rounds && a->op >= Op::ceil && a->op <= Op::trunc) {
    return a;
  }
  switch (op) {
  case Op::neg:
    if (a->op == Op::index && is_small(a->indices[0])) return c.index(SymInt(0) - a->indices[0]);
    return a->op == op ? a->args[0] : nullptr;
  case Op::bitwise_not: return a->op == op ? a->args[0] : nullptr;
  case Op::abs:
    if (!is_signed(a->dtype)) return a;
    if (a->op == Op::neg) return c.unary(op, a->args[0]);
    return a->op == op ? a : nullptr;
  case Op::logical_not:
    switch (a->op) {
    case Op::logical_not: return a->args[0];
    case Op::equal: return c.binary(Op::not_equal, a->args[0], a->args[1]);
    case Op::not_equal: return c.binary(Op::equal, a->args[0], a->args[1]);
    default: return nullptr;
    }
  default: return nullptr;
  }
}

Expr fold_binary(Context& c, Op op, Expr a, Expr b) {
  DType type = is_comparison(op) ? DType::boolean : op == Op::random ? DType::f32 : a->dtype;
  if (is_constant(a) && is_constant(b))
    return from_scalar(c, type, apply_binary(op, a->dtype, scalar_of(a), scalar_of(b)));
  if (a->op == Op::index || b->op == Op::index) {
    // Arithmetic on loop variables stays an index, where it is simplified under extents.
    auto x = symbolic(a), y = symbolic(b);
    if (x && y)
      if (Expr e =
              is_comparison(op) ? fold_index_comparison(c, op, *x, *y) : fold_index_arithmetic(c, op, *x, *y))
        return e;
  }
  if (Expr e = fold_arithmetic(c, op, a, b)) return e;
  return fold_logic(c, op, a, b);
}

Expr fold_where(Context& c, Expr condition, Expr if_true, Expr if_false) {
  if (is_constant(condition)) return condition->as_int() ? if_true : if_false;
  if (if_true == if_false) return if_true;
  if (condition->op == Op::logical_not) return c.where(condition->args[0], if_false, if_true);
  if (if_true->dtype == DType::boolean) {
    if (is(if_true, 1)) return c.binary(Op::logical_or, condition, if_false);
    if (is(if_false, 0)) return c.binary(Op::logical_and, condition, if_true);
  }
  // where(c, where(c, x, y), z)
  if (if_true->op == Op::where && if_true->args[0] == condition)
    return c.where(condition, if_true->args[1], if_false);
  if (if_false->op == Op::where && if_false->args[0] == condition)
    return c.where(condition, if_true, if_false->args[2]);
  return nullptr;
}

Expr fold_cast(Context& c, Expr a, DType to) {
  if (a->dtype == to) return a;
  if (is_constant(a)) return from_scalar(c, to, apply_cast(a->dtype, to, scalar_of(a)));
  if (a->op != Op::cast) return nullptr;
  DType from = a->args[0]->dtype, via = a->dtype;
  if (!widens(from, via)) return nullptr;
  // The value arrives unchanged. Only how it is made to fit differs: integers wrap, floats saturate.
  bool fits = widens(from, to) || to == DType::boolean || is_float(to);
  return fits || is_float(from) == is_float(via) ? c.cast(a->args[0], to) : nullptr;
}

} // namespace tbx::ir
