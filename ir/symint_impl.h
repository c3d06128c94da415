// Parts shared by the symint_*.cpp files: sums, monomials, checked arithmetic, division, proofs.
#pragma once

#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ir/context_impl.h"
#include "ir/symint.h"

namespace tbx::ir::symint {

int64_t checked_add(int64_t a, int64_t b); ///< throws ModelError on overflow
int64_t checked_mul(int64_t a, int64_t b);
/// For b > 0.
inline int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0); }
inline int64_t floor_mod(int64_t a, int64_t b) { return a % b + (a % b < 0 ? b : 0); }

/// `attempt()`, or `otherwise` when intermediate constants overflow or a form grows beyond the limits: what
/// was attempted was an optional rewrite or a proof, so giving up on it is right.
template <class F, class T> T attempt_or(T otherwise, F&& attempt) {
  try {
    return attempt();
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return otherwise;
  }
}

/// A sum under construction. Terms may be in any order and repeat until normalize().
struct Sum {
  int64_t constant = 0;
  std::vector<std::pair<int64_t, const SymNode*>> terms;

  void add(SymInt e, int64_t factor = 1);
  void normalize(); ///< by node id, each term once, no zero coefficients
  /// Coefficient of `term` in a normalized sum, 0 when absent.
  int64_t coefficient_of(const SymNode* term) const;
};
Sum sum_of(SymInt e);   ///< normalized
SymInt from_sum(Sum s); ///< canonical: normalizes, recombines c*(x//c) + x%c

/// coefficient * product of factors (by id, none of them an `add` unless that is too large to multiply out).
struct Monomial {
  int64_t coefficient = 1;
  SymInts factors;
};
SymInts factors_of(const SymNode* term);
SymInt make_product(SymInts factors); ///< factors by id
/// The factors of `a` without those of `b` (with multiplicity); nullopt when one is missing.
std::optional<SymInts> without_factors(const SymInts& a, const SymInts& b);
SymInts common_factors(const SymInts& a, const SymInts& b);
Monomial content_of(const Sum& s); ///< greatest monomial that divides every term and the constant

/// a = quotient * b + rest, with every term that b divides in the quotient.
struct Division {
  SymInt quotient, rest;
};
Division divide_terms(SymInt a, SymInt b);
std::optional<SymInt> divide_exactly(SymInt a, SymInt b);

/// Calls `fn` on every indirect value in e once, operands first, without going into their Exprs.
void for_each_indirect(SymInt e, const std::function<void(const SymNode&)>& fn);

/// min or max by order of nodes, folded with a constant one level down; no proofs.
SymInt make_min_max(SymKind kind, SymInt a, SymInt b);

const Extents& no_extents();

inline constexpr int64_t kInfinity =
    std::numeric_limits<int64_t>::max(); ///< in Bounds: unbounded, as is -kInfinity

/// Bounds and proofs under the extents of loops. An expression over loop variables is only ever evaluated
/// inside the loops, so every extent is at least 1 here.
class Prover {
public:
  /// `extents` must outlive the prover.
  explicit Prover(const Extents& extents = no_extents());

  Bounds bounds(SymInt e);
  bool nonnegative(SymInt e);
  bool at_least(SymInt a, SymInt b); ///< a >= b
  bool below(SymInt a, SymInt b);    ///< a < b
  /// Extent of a variable or indirect value; nullopt when it is not known.
  std::optional<SymInt> extent_of(const SymNode& n) const;

private:
  /// An atom of a sum with its coefficient, which has a known sign.
  struct Pick {
    const SymNode* atom;
    SymInt coefficient, rest;
    bool positive;
  };
  Bounds compute(const SymNode& n);
  void assume_at_least(SymInt e, int64_t lo);
  bool prove(SymInt e);
  bool prove_by_cases(const Pick& p);
  bool prove_shifted(const Sum& s);
  std::optional<Pick> pick(SymInt e, bool varying);
  std::optional<SymInt> lower(SymInt e);
  std::optional<SymInt> bound_of(const SymNode& atom, bool upper);

  const Extents& extents_;
  int fuel_ = 0;
  std::unordered_map<const SymNode*, int64_t> least_;
  std::unordered_map<const SymNode*, Bounds> bounds_;
  std::unordered_map<SymInt, bool> proven_;
};

/// floordiv and mod in canonical form; with a prover also by what is known about ranges.
class Divider {
public:
  explicit Divider(Prover* prover = nullptr) : prover_(prover) {}
  SymInt floordiv(SymInt a, SymInt b);
  SymInt mod(SymInt a, SymInt b);

private:
  /// b = factor * (b / factor); a = factor * quotient + rest with 0 <= rest < factor.
  struct Split {
    SymInt factor, quotient, rest, divisor;
  };
  SymInt quotient_of_rest(SymInt r, SymInt b);
  std::optional<SymInt> constant_quotient(SymInt r, SymInt b);
  SymInts common_divisors(SymInt r, SymInt b);
  std::optional<Split> split(SymInt r, SymInt b);
  bool nonnegative(SymInt e);

  Prover* prover_;
};

} // namespace tbx::ir::symint
