// SymInt: integer expressions over size symbols and loop variables, hash-consed and kept in canonical form.
//
// Semantics. Values are mathematical integers (int64 at run time; sizes are checked against overflow before
// use). floordiv and mod round towards minus infinity and need a positive divisor. Size symbols are >= 0
// unless their range says more; loop variables are >= 0 and below the extent of their loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tbx::ir {

class Context;
struct SymNode;
struct ExprNode;

inline constexpr int64_t kMaxSize = int64_t{1} << 48; ///< upper bound of a size symbol without a known range

/// A value type: an immediate constant, or a pointer to an interned node of one Context. Equal expressions in
/// canonical form are equal pointers, so == is O(1) and structural.
class SymInt {
public:
  SymInt() = default;
  SymInt(int64_t value) : value_(value) {} // NOLINT: constants convert
  SymInt(int value) : value_(value) {}     // NOLINT
  explicit SymInt(const SymNode* node) : node_(node) {}

  bool is_constant() const { return node_ == nullptr; }
  /// Needs is_constant().
  int64_t constant() const { return value_; }
  std::optional<int64_t> as_constant() const { return node_ ? std::nullopt : std::optional<int64_t>(value_); }
  bool is(int64_t v) const { return node_ == nullptr && value_ == v; }
  const SymNode* node() const { return node_; }

  bool operator==(const SymInt&) const = default;
  size_t hash() const { return std::hash<const void*>{}(node_)*31 + std::hash<int64_t>{}(value_); }

private:
  const SymNode* node_ = nullptr;
  int64_t value_ = 0;
};

using SymInts = std::vector<SymInt>;

enum class SymKind : uint8_t {
  symbol,   ///< a model size ("batch") or a data-dependent size (unbacked)
  var,      ///< loop variable i<k>
  rvar,     ///< reduction / inner loop variable r<k>
  indirect, ///< the run-time value of an Expr used as an index, already wrapped and known to lie in [0,
            ///< extent)
  add,      ///< constant + sum of coefficient * term (terms are not `add`)
  mul, ///< product of two or more factors (not constants; an `add` only where multiplying out would explode)
  floordiv,
  mod,
  min,
  max,
};

/// Interned, immutable. Only the fields of its kind are meaningful.
struct SymNode {
  Context* context;
  uint32_t id; ///< creation order in the context: the canonical order of operands
  SymKind kind;
  bool unbacked = false;           ///< symbol: bound while running
  bool varies = false;             ///< contains a loop variable, also inside indirect values
  bool has_indirect = false;       ///< contains an indirect value
  uint16_t depth = 1;              ///< longest chain of operands, indirect values' insides not counted
  int number = 0;                  ///< symbol: index in Context::symbols(); var/rvar: k
  int64_t lo = 0, hi = kMaxSize;   ///< symbol: inclusive range
  std::string name;                ///< symbol: as the model spells it
  const ExprNode* value = nullptr; ///< indirect: int64 expression
  int origin = -1;                 ///< indirect: the node of the model that made it (Program::origin_names)
  std::vector<std::pair<int64_t, const SymNode*>> terms; ///< add
  int64_t constant = 0;                                  ///< add
  std::vector<SymInt> args; ///< mul: factors; floordiv/mod/min/max: two operands; indirect: {extent}
};

SymInt operator+(SymInt a, SymInt b);
SymInt operator-(SymInt a, SymInt b);
SymInt operator*(SymInt a, SymInt b);
inline SymInt operator-(SymInt a) { return SymInt(0) - a; }
inline SymInt& operator+=(SymInt& a, SymInt b) { return a = a + b; }
inline SymInt& operator*=(SymInt& a, SymInt b) { return a = a * b; }
SymInt floordiv(SymInt a, SymInt b);
SymInt mod(SymInt a, SymInt b);
SymInt ceildiv(SymInt a, SymInt b);
SymInt min(SymInt a, SymInt b);
SymInt max(SymInt a, SymInt b);
SymInt product(std::span<const SymInt> xs);

/// Extents of loop variables for simplification and proofs: var(k) < vars[k], rvar(k) < rvars[k]. They
/// describe a point inside the loops, where every extent is at least 1: what is shown with them need not hold
/// where a loop is empty.
struct Extents {
  SymInts vars, rvars;
};

/// Rewrites with what the extents prove ((4*i + j)//4 -> i when j < 4, mod(i, n) -> i when i < n, ...). Equal
/// in value for every assignment inside the ranges, and idempotent.
SymInt simplify(SymInt e, const Extents& extents);

/// Inclusive numeric bounds under the symbols' ranges and the extents; INT64_MAX and -INT64_MAX mean
/// unbounded.
struct Bounds {
  int64_t lo, hi;
};
Bounds bounds_of(SymInt e, const Extents& extents = {});

/// True only when provable.
bool provably_nonnegative(SymInt e, const Extents& extents = {});
bool provably_positive(SymInt e, const Extents& extents = {});
inline bool provably_equal(SymInt a, SymInt b) { return a == b || (a - b).is(0); }
inline bool provably_less(SymInt a, SymInt b, const Extents& extents = {}) {
  return provably_positive(b - a, extents);
}
bool provably_divisible(SymInt a, SymInt b);

/// Replaces loop variables: var(k) by vars[k], rvar(k) by rvars[k] (variables beyond the vectors stay).
/// Indirect values are rewritten too.
struct Substitution {
  SymInts vars, rvars;
};
SymInt substitute(SymInt e, const Substitution& s);
/// Replaces any node (symbol, variable, indirect) by an expression, inside indirect values too.
SymInt replace(SymInt e, const std::unordered_map<const SymNode*, SymInt>& map);

/// e = coefficient * v + rest with `rest` free of v and coefficient free of all loop variables; nullopt if
/// not affine.
struct Affine {
  SymInt coefficient, rest;
};
std::optional<Affine> affine_in(SymInt e, const SymNode* v);

/// Calls `fn` on every node reachable (operands before users, each once); goes into indirect values' own
/// indices too.
void visit(SymInt e, const std::function<void(const SymNode&)>& fn);
bool depends_on(SymInt e, const SymNode* v);
bool has_indirect(SymInt e);
bool has_loop_variable(SymInt e);
bool has_unbacked(SymInt e);

/// Value under an assignment of symbols (indexed by SymNode::number) and loop variables; `indirect` supplies
/// values of indirect nodes. nullopt when it overflows int64 or divides by a non-positive number.
std::optional<int64_t> evaluate(SymInt e, std::span<const int64_t> symbols,
                                std::span<const int64_t> vars = {}, std::span<const int64_t> rvars = {},
                                const std::function<int64_t(const SymNode&)>& indirect = {});

/// "64*i0 + i1", "(batch*seq + 7)//8"; deterministic. Texts beyond 64 KiB end in "...".
std::string to_string(SymInt e);
std::string to_string(std::span<const SymInt> xs);

/// Value the compiler should assume for heuristics when nothing is known (symbols at `assume`).
int64_t size_hint(SymInt e, int64_t assume = 128);

/// Row-major strides of `sizes`.
SymInts contiguous_strides(std::span<const SymInt> sizes);

} // namespace tbx::ir

template <> struct std::hash<tbx::ir::SymInt> {
  size_t operator()(const tbx::ir::SymInt& s) const { return s.hash(); }
};
