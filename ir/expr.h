// Expr: the body of a loop nest as an immutable, hash-consed DAG over loop variables.
//
// Semantics. Every value has a compute type: boolean, i8..i64, u8..u64, f32 or f64. Integers wrap modulo
// 2^bits; shifts by at least the width give 0; integer division truncates towards zero and x/0 = 0,
// INT_MIN/-1 = INT_MIN. Floats follow IEEE 754 without contraction or reassociation inside one expression;
// min/max propagate NaN. Narrow floats (f16, bf16, f8, f4) exist in memory only: a load widens to f32, a
// store rounds; `round_to` rounds in between. Evaluation order is free, every node is pure. A load whose mask
// is false reads nothing and gives 0.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "ir/symint.h"

namespace tbx::ir {

using BufferId = int32_t;

/// Operands of types that no expression joins. A defect, unless the operator is one whose types nobody
/// checked: lower() knows, and makes an Error of it. No Error itself, so nobody takes it for one.
class TypeError : public std::logic_error {
  using std::logic_error::logic_error;
};

enum class Op : uint8_t {
  // leaves
  constant,    ///< `bits`
  index,       ///< value of a SymInt, as i64
  load,        ///< element of `buffer` at `indices`; args[0], if present, is a boolean mask
  accumulator, ///< result of reduction number `number` of the same kernel (ir/kernel.h only)
  local,       ///< value number `number` computed once per outer iteration of the kernel (ir/kernel.h only)
  // unary
  neg,
  abs,
  sign,
  ceil,
  floor,
  round_even,
  trunc,
  sqrt,
  rsqrt,
  reciprocal,
  exp,
  expm1,
  log,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  sigmoid,
  softplus,
  is_nan,
  is_inf,
  logical_not,
  bitwise_not,
  popcount,
  cast,     ///< conversion to `dtype` with C semantics made total: float -> int saturates, NaN -> 0
  round_to, ///< rounds an f32 value to the narrow float `format` and back
  bitcast,  ///< same bits seen as `dtype` of the same width
  // binary (operands of one type)
  add,
  sub,
  mul,
  div,
  floor_mod,
  fmod,
  pow,
  min,
  max,
  atan2,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  logical_and,
  logical_or,
  logical_xor,
  bitwise_and,
  bitwise_or,
  bitwise_xor,
  shift_left,
  shift_right,
  random, ///< uniform in [0, 1) from (seed: i64, counter: i64) by Philox-4x32-10
  // ternary
  where, ///< args: condition, if true, if false
};

const char* name_of(Op op);
bool is_unary(Op op);
bool is_binary(Op op);
bool is_comparison(Op op); ///< gives boolean from two operands of one type
bool is_commutative(Op op);
bool is_expensive(Op op); ///< transcendental: not worth computing twice (realize policy)

struct ExprNode;
using Expr = const ExprNode*;

/// Interned, immutable; equal expressions are equal pointers within one Context.
struct ExprNode {
  Context* context;
  uint32_t id; ///< creation order: operands have smaller ids than users
  Op op;
  DType dtype;
  DType format = DType::undefined; ///< round_to: the narrow format; cast to f8: with `saturate` in bits
  int num_args = 0;
  Expr args[3] = {nullptr, nullptr, nullptr};
  uint64_t bits = 0;    ///< constant: the value's bits (double for floats, int64 for integers and bool)
  BufferId buffer = -1; ///< load
  int number = 0;       ///< accumulator, local
  SymInts indices; ///< load: one per dimension of the buffer, or one linear address (ir/kernel.h); index: {e}

  double as_double() const; ///< constant of a float type
  int64_t as_int() const;   ///< constant of an integer type or bool
  Expr mask() const { return op == Op::load && num_args == 1 ? args[0] : nullptr; }
};

/// Owns all SymInt and Expr nodes of one compilation. Not thread-safe; compilations run side by side with one
/// each.
class Context {
public:
  Context();
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // --- SymInt leaves
  /// The symbol called `name`, made on first use. A narrower range given later narrows it.
  SymInt symbol(const std::string& name, int64_t lo = 0, int64_t hi = kMaxSize);
  /// A fresh symbol bound while running (NonZero, Unique, ...).
  SymInt unbacked_symbol(const std::string& hint, int64_t lo = 0, int64_t hi = kMaxSize);
  SymInt var(int k);
  SymInt rvar(int k);
  /// `value` (i64) as an index below `extent`. Negative values count from the end when `wrap`; out-of-range
  /// values are reported at run time when `check`, and never address memory outside.
  SymInt indirect(Expr value, SymInt extent, bool wrap = true) {
    return indirect(value, extent, wrap, origin);
  }
  /// As above; `origin` is the node of the model to name when a value is out of range.
  SymInt indirect(Expr value, SymInt extent, bool wrap, int origin);
  int origin = -1; ///< the node being lowered
  const std::vector<const SymNode*>& symbols() const;

  // --- Expr
  Expr constant(DType dtype, double value); ///< float types; integers convert exactly representable values
  Expr constant_int(DType dtype, int64_t value); ///< integer types and bool; floats convert
  Expr boolean(bool value) { return constant_int(DType::boolean, value); }
  Expr index(SymInt e);
  Expr load(BufferId buffer, DType dtype, SymInts indices, Expr mask = nullptr);
  Expr accumulator(int number, DType dtype);
  Expr local(int number, DType dtype);
  /// Folds constants, applies identities that are exact in IEEE arithmetic (x*1, x+(-0), where(true,..),
  /// double casts) and orders commutative operands.
  Expr unary(Op op, Expr a);
  Expr binary(Op op, Expr a, Expr b);
  Expr where(Expr condition, Expr if_true, Expr if_false);
  Expr cast(Expr a, DType to);
  Expr round_to(Expr a, DType format, bool saturate = true);
  Expr bitcast(Expr a, DType to);

  // interning, used by symint.cpp and expr.cpp
  struct Impl;
  Impl& impl() { return *impl_; }

private:
  std::unique_ptr<Impl> impl_;
};

// Shorthand for lowerings: c.add(a, b) reads worse than a + b, but pointers cannot be overloaded.
inline Expr add(Expr a, Expr b) { return a->context->binary(Op::add, a, b); }
inline Expr sub(Expr a, Expr b) { return a->context->binary(Op::sub, a, b); }
inline Expr mul(Expr a, Expr b) { return a->context->binary(Op::mul, a, b); }
inline Expr div(Expr a, Expr b) { return a->context->binary(Op::div, a, b); }
inline Expr unary(Op op, Expr a) { return a->context->unary(op, a); }
inline Expr binary(Op op, Expr a, Expr b) { return a->context->binary(op, a, b); }
inline Expr where(Expr c, Expr t, Expr f) { return c->context->where(c, t, f); }

/// Substitutes loop variables throughout (load indices, index nodes, masks, indirect values), linear in the
/// DAG.
Expr substitute(Expr e, const Substitution& s);
/// Bottom-up rewrite: `fn` sees each node with already rewritten operands, a load once, and returns its
/// replacement (or the node).
Expr rewrite(Expr e, const std::function<Expr(Expr)>& fn);
/// Adds `mask` to every load (conjunction with an existing mask).
Expr mask_loads(Expr e, Expr mask);
/// Simplifies all index expressions under the extents.
Expr simplify(Expr e, const Extents& extents);

/// Each node once, operands first; nodes inside indirect indices included.
void visit(Expr e, const std::function<void(Expr)>& fn);
void visit(std::span<const Expr> es, const std::function<void(Expr)>& fn);

struct ExprCounts {
  int ops = 0;       ///< arithmetic nodes after sharing
  int loads = 0;     ///< distinct loads
  int expensive = 0; ///< is_expensive nodes
};
ExprCounts count(std::span<const Expr> es);

/// "where(i0 < 3, load(b2, [i0, i1]), 0f)": shared nodes are named "%1 = ..." lines first; deterministic.
std::string to_string(Expr e);

} // namespace tbx::ir
