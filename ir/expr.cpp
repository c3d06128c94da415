// Construction of Expr nodes: interning, constant folding and identities that are exact in IEEE arithmetic.
#include "ir/expr.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "ir/context_impl.h"
#include "ir/scalar_ops.h"

namespace tbx::ir {
namespace {

bool is_float_type(DType t) { return t == DType::f32 || t == DType::f64; }

Scalar scalar_of(Expr e) {
  if (is_float_type(e->dtype)) return {0, std::bit_cast<double>(e->bits)};
  return {static_cast<int64_t>(e->bits), 0};
}

Expr from_scalar(Context& c, DType type, Scalar s) {
  return is_float_type(type) ? c.constant(type, s.f) : c.constant_int(type, s.i);
}

bool is_constant(Expr e) { return e->op == Op::constant; }
bool is_value(Expr e, double v) {
  if (!is_constant(e)) return false;
  if (is_float_type(e->dtype)) return e->as_double() == v && std::signbit(e->as_double()) == std::signbit(v);
  return static_cast<double>(e->as_int()) == v;
}

Expr make(Context& c, Op op, DType dtype, std::initializer_list<Expr> args) {
  ExprNode n{};
  n.op = op;
  n.dtype = dtype;
  for (Expr a : args) n.args[n.num_args++] = a;
  return c.impl().intern(std::move(n));
}

/// The SymInt behind an integer expression made of sizes and loop variables only.
std::optional<SymInt> symbolic(Expr e) {
  if (e->dtype != DType::i64) return std::nullopt;
  if (e->op == Op::index) return e->indices[0];
  if (e->op == Op::constant) return SymInt(e->as_int());
  return std::nullopt;
}

Expr fold_index(Context& c, Op op, Expr a, Expr b) {
  // Arithmetic on loop variables stays an index expression, where it is simplified under extents.
  if (a->op != Op::index && b->op != Op::index) return nullptr;
  auto x = symbolic(a), y = symbolic(b);
  if (!x || !y) return nullptr;
  constexpr int64_t kLimit = int64_t{1} << 46;
  if ((x->is_constant() && std::abs(x->constant()) > kLimit) || (y->is_constant() && std::abs(y->constant()) > kLimit))
    return nullptr;
  switch (op) {
    case Op::add: return c.index(*x + *y);
    case Op::sub: return c.index(*x - *y);
    case Op::mul: return x->is_constant() || y->is_constant() ? c.index(*x * *y) : nullptr;
    case Op::min: return c.index(min(*x, *y));
    case Op::max: return c.index(max(*x, *y));
    case Op::floor_mod: return y->is_constant() && y->constant() > 0 ? c.index(mod(*x, *y)) : nullptr;
    case Op::div:
      return y->is_constant() && y->constant() > 0 && provably_nonnegative(*x) ? c.index(floordiv(*x, *y)) : nullptr;
    case Op::less: return provably_less(*x, *y) ? c.boolean(true) : provably_nonnegative(*x - *y) ? c.boolean(false) : nullptr;
    case Op::greater_equal:
      return provably_nonnegative(*x - *y) ? c.boolean(true) : provably_less(*x, *y) ? c.boolean(false) : nullptr;
    case Op::less_equal:
      return provably_nonnegative(*y - *x) ? c.boolean(true) : provably_less(*y, *x) ? c.boolean(false) : nullptr;
    case Op::greater: return provably_less(*y, *x) ? c.boolean(true) : provably_nonnegative(*y - *x) ? c.boolean(false) : nullptr;
    default: return nullptr;
  }
}

/// Results that do not depend on one operand, exactly. nullptr: none applies.
Expr identity(Context& c, Op op, Expr a, Expr b) {
  bool real = is_float_type(a->dtype);
  switch (op) {
    case Op::add:
      // x + (-0) is x for every x; x + 0 is not for x = -0.
      if (is_value(b, real ? -0.0 : 0)) return a;
      if (is_value(a, real ? -0.0 : 0)) return b;
      break;
    case Op::sub:
      if (is_value(b, 0.0)) return a;
      if (!real && a == b) return c.constant_int(a->dtype, 0);
      break;
    case Op::mul:
      if (is_value(b, 1)) return a;
      if (is_value(a, 1)) return b;
      if (!real && (is_value(a, 0) || is_value(b, 0))) return c.constant_int(a->dtype, 0);
      break;
    case Op::div:
      if (is_value(b, 1)) return a;
      break;
    case Op::pow:
      if (is_value(b, 1)) return a;
      if (is_value(b, 2)) return c.binary(Op::mul, a, a);
      if (real && is_value(b, 0.5)) break;
      break;
    case Op::logical_and:
      if (is_value(a, 1)) return b;
      if (is_value(b, 1)) return a;
      if (is_value(a, 0) || is_value(b, 0)) return c.boolean(false);
      if (a == b) return a;
      break;
    case Op::logical_or:
      if (is_value(a, 0)) return b;
      if (is_value(b, 0)) return a;
      if (is_value(a, 1) || is_value(b, 1)) return c.boolean(true);
      if (a == b) return a;
      break;
    case Op::min:
    case Op::max:
    case Op::bitwise_and:
    case Op::bitwise_or:
      if (a == b) return a;
      break;
    default: break;
  }
  return nullptr;
}

}  // namespace

double ExprNode::as_double() const { return std::bit_cast<double>(bits); }
int64_t ExprNode::as_int() const { return static_cast<int64_t>(bits); }

bool is_unary(Op op) { return op >= Op::neg && op <= Op::bitcast; }
bool is_binary(Op op) { return op >= Op::add && op <= Op::random; }
bool is_comparison(Op op) { return op >= Op::equal && op <= Op::greater_equal; }

bool is_commutative(Op op) {
  switch (op) {
    case Op::add:
    case Op::mul:
    case Op::equal:
    case Op::not_equal:
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_xor:
    case Op::bitwise_and:
    case Op::bitwise_or:
    case Op::bitwise_xor: return true;
    default: return false;
  }
}

bool is_expensive(Op op) {
  switch (op) {
    case Op::pow:
    case Op::atan2:
    case Op::fmod:
    case Op::floor_mod:
    case Op::random: return true;
    default: return op >= Op::exp && op <= Op::softplus;
  }
}

const char* name_of(Op op) {
  static constexpr const char* kNames[] = {
      "constant", "index", "load", "accumulator", "local",
      "neg", "abs", "sign", "ceil", "floor", "round_even", "trunc", "sqrt", "rsqrt", "reciprocal",
      "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh",
      "acosh", "atanh", "erf", "sigmoid", "softplus", "is_nan", "is_inf", "logical_not", "bitwise_not", "popcount",
      "cast", "round_to", "bitcast",
      "add", "sub", "mul", "div", "floor_mod", "fmod", "pow", "min", "max", "atan2",
      "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
      "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left",
      "shift_right", "random", "where"};
  static_assert(std::size(kNames) == static_cast<size_t>(Op::where) + 1);
  return kNames[static_cast<size_t>(op)];
}

Expr Context::constant(DType dtype, double value) {
  if (!is_float_type(dtype)) return constant_int(dtype, apply_cast(DType::f64, dtype, {0, value}).i);
  ExprNode n{};
  n.op = Op::constant;
  n.dtype = dtype;
  n.bits = std::bit_cast<uint64_t>(dtype == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value);
  return impl_->intern(std::move(n));
}

Expr Context::constant_int(DType dtype, int64_t value) {
  if (is_float_type(dtype)) return constant(dtype, apply_cast(DType::i64, dtype, {value, 0}).f);
  TBX_INTERNAL(dtype == compute_type(dtype) && (is_integer(dtype) || dtype == DType::boolean));
  ExprNode n{};
  n.op = Op::constant;
  n.dtype = dtype;
  n.bits = static_cast<uint64_t>(wrap_integer(dtype, value));
  return impl_->intern(std::move(n));
}

Expr Context::index(SymInt e) {
  if (e.is_constant()) return constant_int(DType::i64, e.constant());
  if (e.node()->kind == SymKind::indirect && e.node()->value->op == Op::index) return e.node()->value;
  ExprNode n{};
  n.op = Op::index;
  n.dtype = DType::i64;
  n.indices = {e};
  return impl_->intern(std::move(n));
}

Expr Context::load(BufferId buffer, DType dtype, SymInts indices, Expr mask) {
  TBX_INTERNAL(dtype == compute_type(dtype) && dtype != DType::undefined);
  if (mask && is_constant(mask)) {
    if (!mask->as_int()) return constant_int(dtype, 0);
    mask = nullptr;
  }
  ExprNode n{};
  n.op = Op::load;
  n.dtype = dtype;
  n.buffer = buffer;
  n.indices = std::move(indices);
  if (mask) {
    TBX_INTERNAL(mask->dtype == DType::boolean);
    n.args[n.num_args++] = mask;
  }
  return impl_->intern(std::move(n));
}

static Expr numbered(Context& c, Op op, int number, DType dtype) {
  ExprNode n{};
  n.op = op;
  n.dtype = dtype;
  n.number = number;
  return c.impl().intern(std::move(n));
}

Expr Context::accumulator(int number, DType dtype) { return numbered(*this, Op::accumulator, number, dtype); }
Expr Context::local(int number, DType dtype) { return numbered(*this, Op::local, number, dtype); }

Expr Context::unary(Op op, Expr a) {
  TBX_INTERNAL(is_unary(op) && op != Op::cast && op != Op::round_to && op != Op::bitcast);
  bool predicate = op == Op::is_nan || op == Op::is_inf || op == Op::logical_not;
  DType type = predicate ? DType::boolean : a->dtype;
  if (op == Op::logical_not && a->dtype != DType::boolean) a = cast(a, DType::boolean);
  if (is_constant(a)) return from_scalar(*this, type, apply_unary(op, a->dtype, scalar_of(a)));
  if (!is_float_type(a->dtype)) {
    if (op == Op::is_nan || op == Op::is_inf) return boolean(false);
    if (op == Op::ceil || op == Op::floor || op == Op::round_even || op == Op::trunc) return a;
  }
  if (a->op == op && (op == Op::neg || op == Op::logical_not || op == Op::bitwise_not)) return a->args[0];
  if (a->op == op && (op == Op::abs || op == Op::ceil || op == Op::floor || op == Op::trunc)) return a;
  if (op == Op::neg && a->op == Op::index) return index(SymInt(0) - a->indices[0]);
  return make(*this, op, type, {a});
}

Expr Context::binary(Op op, Expr a, Expr b) {
  TBX_INTERNAL(is_binary(op));
  TBX_INTERNAL(a->dtype == b->dtype);
  DType type = is_comparison(op) ? DType::boolean : op == Op::random ? DType::f32 : a->dtype;
  if (is_constant(a) && is_constant(b))
    return from_scalar(*this, type, apply_binary(op, a->dtype, scalar_of(a), scalar_of(b)));
  if (Expr e = fold_index(*this, op, a, b)) return e;
  if (Expr e = identity(*this, op, a, b)) return e;
  if (is_commutative(op) && b->id < a->id) std::swap(a, b);
  return make(*this, op, type, {a, b});
}

Expr Context::where(Expr condition, Expr if_true, Expr if_false) {
  TBX_INTERNAL(condition->dtype == DType::boolean && if_true->dtype == if_false->dtype);
  if (is_constant(condition)) return condition->as_int() ? if_true : if_false;
  if (if_true == if_false) return if_true;
  if (condition->op == Op::logical_not) return where(condition->args[0], if_false, if_true);
  return make(*this, Op::where, if_true->dtype, {condition, if_true, if_false});
}

Expr Context::cast(Expr a, DType to) {
  TBX_INTERNAL(to == compute_type(to));
  if (a->dtype == to) return a;
  if (is_constant(a)) return from_scalar(*this, to, apply_cast(a->dtype, to, scalar_of(a)));
  // Widening and back loses nothing.
  if (a->op == Op::cast && a->args[0]->dtype == to) {
    DType from = to, via = a->dtype;
    bool exact = (from == DType::boolean) || (from == DType::f32 && via == DType::f64) ||
                 (is_integer(from) && is_integer(via) && bits_of(via) > bits_of(from)) ||
                 (is_integer(from) && via == DType::f64 && bits_of(from) <= 32) ||
                 (is_integer(from) && via == DType::f32 && bits_of(from) <= 16);
    if (exact) return a->args[0];
  }
  return make(*this, Op::cast, to, {a});
}

Expr Context::round_to(Expr a, DType format, bool saturate) {
  TBX_INTERNAL(a->dtype == DType::f32 && is_low_precision_float(format));
  if (is_constant(a)) return from_scalar(*this, DType::f32, apply_round(format, saturate, scalar_of(a)));
  if (a->op == Op::round_to && a->format == format) return a;
  ExprNode n{};
  n.op = Op::round_to;
  n.dtype = DType::f32;
  n.format = format;
  n.bits = saturate;
  n.args[n.num_args++] = a;
  return impl_->intern(std::move(n));
}

Expr Context::bitcast(Expr a, DType to) {
  if (a->dtype == to) return a;
  TBX_INTERNAL(bits_of(a->dtype) == bits_of(to));
  if (is_constant(a)) return from_scalar(*this, to, apply_bitcast(a->dtype, to, scalar_of(a)));
  return make(*this, Op::bitcast, to, {a});
}

}  // namespace tbx::ir
