// Simplification of SymInt expressions by what the extents of loops and the ranges of symbols prove.
#include "ir/rewriter.h"
#include "ir/symint_impl.h"

namespace tbx::ir {

using namespace symint;

IndexSimplifier::IndexSimplifier(const Extents& extents) : prover_(std::make_unique<Prover>(extents)) {
  to_fixed_point_ = true;
}
IndexSimplifier::~IndexSimplifier() = default;

/// A value that can only be one number is that number. Indirect values and what is made of them stay: they
/// carry a check.
std::optional<SymInt> IndexSimplifier::replacement(const SymNode& n) {
  if (n.has_indirect) return std::nullopt;
  Bounds b = prover_->bounds(SymInt(&n));
  return b.lo == b.hi ? std::optional<SymInt>(b.lo) : std::nullopt;
}

SymInt IndexSimplifier::combine(SymKind kind, SymInt a, SymInt b) {
  bool divides = kind == SymKind::floordiv || kind == SymKind::mod;
  if (divides && prover_->bounds(b).hi <= 0) return 0; // has no value anywhere
  switch (kind) {
  case SymKind::floordiv: return Divider(prover_.get()).floordiv(a, b);
  case SymKind::mod: return Divider(prover_.get()).mod(a, b);
  default: {
    if (a.is_constant() && b.is_constant()) return kind == SymKind::min ? min(a, b) : max(a, b);
    if (a == b) return a;
    bool is_min = kind == SymKind::min;
    if (prover_->at_least(b, a)) return is_min ? a : b;
    if (prover_->at_least(a, b)) return is_min ? b : a;
    return make_min_max(kind, a, b);
  }
  }
}

/// x*min(n, 1) is x where 0 <= x <= n: a broadcast along a dimension that may turn out to be 1 keeps its
/// index at 0 by such a factor, and the variable of that dimension does it anyway.
SymInt IndexSimplifier::multiply(SymInts factors) {
  for (size_t i = 0; i < factors.size();) {
    const SymNode* m = factors[i].node();
    bool is_switch = m && m->kind == SymKind::min && m->args[1].is(1) && prover_->nonnegative(m->args[0]);
    bool is_needless = false;
    for (size_t j = 0; is_switch && !is_needless && j < factors.size(); ++j)
      is_needless = j != i && prover_->nonnegative(factors[j]) && prover_->at_least(m->args[0], factors[j]);
    if (is_needless)
      factors.erase(factors.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
  return product(factors);
}

bool IndexSimplifier::proves_at_least(SymInt a, SymInt b) { return prover_->at_least(a, b); }
bool IndexSimplifier::proves_below(SymInt a, SymInt b) { return prover_->below(a, b); }

SymInt simplify(SymInt e, const Extents& extents) {
  if (e.is_constant()) return e;
  return IndexSimplifier(extents)(e);
}

} // namespace tbx::ir
