// Rewriting of SymInt expressions: the SymInt half of Rewriter, substitution and replacement.
#include "ir/rewriter.h"
#include "ir/symint_impl.h"

namespace tbx::ir {

SymInt Rewriter::operator()(SymInt e) {
  if (e.is_constant() || is_unaffected(*e.node())) return e;
  if (auto it = indices_.find(e.node()); it != indices_.end()) return it->second;
  auto r = replacement(*e.node());
  if (!r) r = rebuild(*e.node());
  indices_[e.node()] = *r;
  if (!to_fixed_point_ || *r == e) return *r;
  // Should two rewrites undo each other, the entry made above ends the chain.
  r = (*this)(*r);
  indices_[e.node()] = *r;
  return *r;
}

SymInt Rewriter::rebuild(const SymNode& n) {
  auto same = [&] { return SymInt(&n); };
  switch (n.kind) {
  case SymKind::symbol:
  case SymKind::var:
  case SymKind::rvar: return same();
  case SymKind::indirect: {
    Expr value = (*this)(n.value);
    SymInt extent = (*this)(n.args[0]);
    return value == n.value && extent == n.args[0] ? same()
                                                   : n.context->indirect(value, extent, false, n.origin);
  }
  case SymKind::add: {
    symint::Sum sum;
    bool changed = false;
    sum.constant = n.constant;
    for (auto [coefficient, term] : n.terms) {
      SymInt t = (*this)(SymInt(term));
      changed |= t.node() != term;
      sum.add(t, coefficient);
    }
    return changed ? symint::from_sum(std::move(sum)) : same();
  }
  case SymKind::mul: {
    SymInts factors;
    for (SymInt f : n.args) factors.push_back((*this)(f));
    return factors == n.args && !to_fixed_point_ ? same() : multiply(std::move(factors));
  }
  case SymKind::floordiv:
  case SymKind::mod:
  case SymKind::min:
  case SymKind::max: break;
  }
  SymInt a = (*this)(n.args[0]), b = (*this)(n.args[1]);
  return a == n.args[0] && b == n.args[1] && !to_fixed_point_ ? same() : combine(n.kind, a, b);
}

SymInt Rewriter::combine(SymKind kind, SymInt a, SymInt b) {
  switch (kind) {
  case SymKind::floordiv: return floordiv(a, b);
  case SymKind::mod: return mod(a, b);
  case SymKind::min: return min(a, b);
  default: return max(a, b);
  }
}

SymInt Rewriter::multiply(SymInts factors) { return product(factors); }

namespace {

class Replacer : public Rewriter {
public:
  explicit Replacer(const std::unordered_map<const SymNode*, SymInt>& map) : map_(map) {}

protected:
  std::optional<SymInt> replacement(const SymNode& n) override {
    auto it = map_.find(&n);
    return it == map_.end() ? std::nullopt : std::optional(it->second);
  }

private:
  const std::unordered_map<const SymNode*, SymInt>& map_;
};

} // namespace

std::optional<SymInt> Substituter::replacement(const SymNode& n) {
  if (n.kind != SymKind::var && n.kind != SymKind::rvar) return std::nullopt;
  const SymInts& values = n.kind == SymKind::var ? s_.vars : s_.rvars;
  return static_cast<size_t>(n.number) < values.size() ? values[n.number] : SymInt(&n);
}

bool Substituter::is_unaffected(const SymNode& n) { return !n.varies; }

SymInt substitute(SymInt e, const Substitution& s) {
  if (e.is_constant() || !e.node()->varies) return e;
  return Substituter(s)(e);
}

SymInt replace(SymInt e, const std::unordered_map<const SymNode*, SymInt>& map) {
  if (e.is_constant() || map.empty()) return e;
  return Replacer(map)(e);
}

} // namespace tbx::ir
