// Construction of Expr nodes: types of results, folding (expr_fold.h), interning.
#include "ir/expr.h"

#include <bit>

#include "base/error.h"
#include "ir/context_impl.h"
#include "ir/expr_fold.h"
#include "ir/scalar_ops.h"

namespace tbx::ir {
namespace {

Expr make(Context& c, Op op, DType dtype, std::initializer_list<Expr> args) {
  ExprNode n{};
  n.op = op;
  n.dtype = dtype;
  for (Expr a : args) n.args[n.num_args++] = a;
  return c.impl().intern(std::move(n));
}

bool is_real(DType t) { return t == DType::f32 || t == DType::f64; }

} // namespace

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
      "constant",    "index",       "load",       "accumulator",   "local",       "neg",
      "abs",         "sign",        "ceil",       "floor",         "round_even",  "trunc",
      "sqrt",        "rsqrt",       "reciprocal", "exp",           "expm1",       "log",
      "log1p",       "sin",         "cos",        "tan",           "asin",        "acos",
      "atan",        "sinh",        "cosh",       "tanh",          "asinh",       "acosh",
      "atanh",       "erf",         "sigmoid",    "softplus",      "is_nan",      "is_inf",
      "logical_not", "bitwise_not", "popcount",   "cast",          "round_to",    "bitcast",
      "add",         "sub",         "mul",        "div",           "floor_mod",   "fmod",
      "pow",         "min",         "max",        "atan2",         "equal",       "not_equal",
      "less",        "less_equal",  "greater",    "greater_equal", "logical_and", "logical_or",
      "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",   "shift_left",  "shift_right",
      "random",      "where"};
  static_assert(std::size(kNames) == static_cast<size_t>(Op::where) + 1);
  return kNames[static_cast<size_t>(op)];
}

Expr Context::constant(DType dtype, double value) {
  if (!is_real(dtype)) return constant_int(dtype, apply_cast(DType::f64, dtype, {0, value}).i);
  ExprNode n{};
  n.op = Op::constant;
  n.dtype = dtype;
  n.bits =
      std::bit_cast<uint64_t>(dtype == DType::f32 ? static_cast<double>(static_cast<float>(value)) : value);
  return impl_->intern(std::move(n));
}

Expr Context::constant_int(DType dtype, int64_t value) {
  if (is_real(dtype)) return constant(dtype, apply_cast(DType::i64, dtype, {value, 0}).f);
  TBX_INTERNAL(dtype == compute_type(dtype) && (is_integer(dtype) || dtype == DType::boolean));
  ExprNode n{};
  n.op = Op::constant;
  n.dtype = dtype;
  n.bits = static_cast<uint64_t>(wrap_integer(dtype, value));
  return impl_->intern(std::move(n));
}

Expr Context::index(SymInt e) {
  if (e.is_constant()) return constant_int(DType::i64, e.constant());
  ExprNode n{};
  n.op = Op::index;
  n.dtype = DType::i64;
  n.indices = {e};
  return impl_->intern(std::move(n));
}

Expr Context::load(BufferId buffer, DType dtype, SymInts indices, Expr mask) {
  TBX_INTERNAL(dtype == compute_type(dtype) && dtype != DType::undefined);
  if (mask && mask->op == Op::constant) {
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

static void check_same_type(Expr a, Expr b) {
  if (a->dtype != b->dtype)
    throw TypeError(fmt::format("operands of types {} and {} meet", name_of(a->dtype), name_of(b->dtype)));
}

Expr Context::unary(Op op, Expr a) {
  TBX_INTERNAL(is_unary(op) && op != Op::cast && op != Op::round_to && op != Op::bitcast);
  if (op == Op::logical_not && a->dtype != DType::boolean) a = cast(a, DType::boolean);
  if (op > Op::trunc && op < Op::is_nan && !is_float(a->dtype))
    throw TypeError(fmt::format("a function of real numbers is applied to {}", name_of(a->dtype)));
  if (Expr e = fold_unary(*this, op, a)) return e;
  bool predicate = op == Op::is_nan || op == Op::is_inf || op == Op::logical_not;
  return make(*this, op, predicate ? DType::boolean : a->dtype, {a});
}

Expr Context::binary(Op op, Expr a, Expr b) {
  TBX_INTERNAL(is_binary(op));
  check_same_type(a, b);
  if (Expr e = fold_binary(*this, op, a, b)) return e;
  if (is_commutative(op) && b->id < a->id) std::swap(a, b);
  return make(*this, op,
              is_comparison(op)  ? DType::boolean
              : op == Op::random ? DType::f32
                                 : a->dtype,
              {a, b});
}

Expr Context::where(Expr condition, Expr if_true, Expr if_false) {
  if (condition->dtype != DType::boolean)
    throw TypeError(fmt::format("a condition is {}", name_of(condition->dtype)));
  check_same_type(if_true, if_false);
  if (Expr e = fold_where(*this, condition, if_true, if_false)) return e;
  return make(*this, Op::where, if_true->dtype, {condition, if_true, if_false});
}

Expr Context::cast(Expr a, DType to) {
  TBX_INTERNAL(to == compute_type(to));
  if (Expr e = fold_cast(*this, a, to)) return e;
  return make(*this, Op::cast, to, {a});
}

Expr Context::round_to(Expr a, DType format, bool saturate) {
  TBX_INTERNAL(a->dtype == DType::f32 && is_low_precision_float(format));
  if (a->op == Op::constant)
    return constant(DType::f32, apply_round(format, saturate, {0, a->as_double()}).f);
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
  if (a->op == Op::bitcast) return bitcast(a->args[0], to);
  if (a->op == Op::constant) {
    Scalar bits = is_real(a->dtype) ? Scalar{0, a->as_double()} : Scalar{a->as_int(), 0};
    Scalar r = apply_bitcast(a->dtype, to, bits);
    // A NaN's payload is not kept by constants.
    if (!is_real(to)) return constant_int(to, r.i);
    if (r.f == r.f) return constant(to, r.f);
  }
  return make(*this, Op::bitcast, to, {a});
}

} // namespace tbx::ir
