// Proofs that SymInt expressions are nonnegative, by symbolic bounds.
//
// A sum is bounded from below by replacing one part after the other by its symbolic lower or upper bound,
// whichever the sign of its coefficient asks for: loop variables by 0 or extent - 1, x % n by 0 or n - 1, and
// so on, from the outermost parts inwards, so that terms cancel before anything is lost. What is left over
// symbols alone is proven by writing every symbol as its least value plus something nonnegative.
#include <algorithm>
#include <map>
#include <set>

#include "ir/symint_impl.h"

namespace tbx::ir {
namespace symint {
namespace {

constexpr int kFuel = 96;               ///< steps of one proof
constexpr size_t kMaxTerms = 64;        ///< of sums that are looked at
constexpr size_t kMaxShiftedTerms = 24; ///< ... when symbols are shifted, which multiplies terms
constexpr size_t kMaxShiftedDegree = 5;

bool is_min_max(const SymNode& n) { return n.kind == SymKind::min || n.kind == SymKind::max; }

} // namespace

bool Prover::nonnegative(SymInt e) {
  if (e.is_constant()) return e.constant() >= 0;
  Bounds b = bounds(e);
  if (b.lo >= 0) return true;
  if (b.hi < 0) return false;
  if (auto it = proven_.find(e); it != proven_.end()) return it->second;
  fuel_ = kFuel;
  bool result = attempt_or(false, [&] { return prove(e); });
  proven_.emplace(e, result);
  return result;
}

bool Prover::at_least(SymInt a, SymInt b) {
  return attempt_or(false, [&] { return nonnegative(a - b); });
}

bool Prover::below(SymInt a, SymInt b) {
  return attempt_or(false, [&] { return nonnegative(b - a - SymInt(1)); });
}

bool Prover::prove(SymInt e) {
  if (e.is_constant()) return e.constant() >= 0;
  Bounds b = bounds(e);
  if (b.lo >= 0) return true;
  if (b.hi < 0 || fuel_-- <= 0) return false;
  Sum s = sum_of(e);
  if (s.terms.size() > kMaxTerms) return false;
  if (e.node()->varies)
    if (auto p = pick(e, true)) return prove_by_cases(*p);
  if (prove_shifted(s)) return true;
  auto p = pick(e, false);
  return p && prove_by_cases(*p);
}

/// The outermost atom of e that can be bounded and whose coefficient has a known sign.
std::optional<Prover::Pick> Prover::pick(SymInt e, bool varying) {
  const Sum s = sum_of(e);
  std::vector<const SymNode*> atoms, powers;
  for (auto [coefficient, term] : s.terms) {
    SymInts factors = factors_of(term);
    for (size_t i = 0; i < factors.size(); ++i) {
      const SymNode* f = factors[i].node();
      if (i > 0 && factors[i - 1] == factors[i]) powers.push_back(f);
      if (f->kind == SymKind::symbol || f->kind == SymKind::add || f->varies != varying) continue;
      atoms.push_back(f);
    }
  }
  // Users have greater ids than what they use.
  std::sort(atoms.begin(), atoms.end(), [](auto* x, auto* y) { return x->id > y->id; });
  atoms.erase(std::unique(atoms.begin(), atoms.end()), atoms.end());
  for (const SymNode* atom : atoms) {
    if (std::find(powers.begin(), powers.end(), atom) != powers.end()) continue;
    Sum with, without;
    without.constant = s.constant;
    for (auto [coefficient, term] : s.terms) {
      if (auto others = without_factors(factors_of(term), {SymInt(atom)}))
        with.add(make_product(*others), coefficient);
      else
        without.terms.emplace_back(coefficient, term);
    }
    SymInt c = from_sum(std::move(with));
    bool positive = prove(c);
    if (!positive && !prove(SymInt(0) - c)) continue;
    // Without an extent a variable has no upper bound.
    bool is_variable = atom->kind == SymKind::var || atom->kind == SymKind::rvar;
    if (is_variable && !positive && !extent_of(*atom)) continue;
    return Pick{atom, c, from_sum(std::move(without)), positive};
  }
  return std::nullopt;
}

bool Prover::prove_by_cases(const Pick& p) {
  auto with = [&](SymInt bound) {
    return attempt_or(false, [&] { return prove(p.rest + p.coefficient * bound); });
  };
  const SymNode& n = *p.atom;
  if (is_min_max(n)) {
    // c*min(x, y) is the smaller of c*x and c*y for c >= 0 and the greater for c <= 0.
    bool either = (n.kind == SymKind::min) != p.positive;
    if (either) return with(n.args[0]) || with(n.args[1]);
    return with(n.args[0]) && with(n.args[1]);
  }
  if (auto bound = bound_of(n, !p.positive); bound && with(*bound)) return true;
  if (n.kind == SymKind::mod) return !p.positive && bounds(n.args[0]).lo >= 0 && with(n.args[0]);
  if (n.kind != SymKind::floordiv) return false;
  // x - d + 1 <= d*(x//d) <= x; where d does not divide the coefficient, d times the whole is proven instead.
  SymInt x = n.args[0], d = n.args[1], bound = p.positive ? x - d + SymInt(1) : x;
  return attempt_or(false, [&] {
    if (auto k = divide_exactly(p.coefficient, d)) return prove(p.rest + *k * bound);
    return prove(p.rest * d + p.coefficient * bound);
  });
}

/// A bound of an atom that does not mention it; nullopt when there is none.
std::optional<SymInt> Prover::bound_of(const SymNode& atom, bool upper) {
  switch (atom.kind) {
  case SymKind::var:
  case SymKind::rvar:
  case SymKind::indirect: {
    if (!upper) return SymInt(0);
    auto extent = extent_of(atom);
    if (!extent || (!extent->is_constant() && extent->node()->varies && atom.kind != SymKind::indirect))
      return std::nullopt;
    return *extent - SymInt(1);
  }
  case SymKind::mod: return upper ? atom.args[1] - SymInt(1) : SymInt(0);
  case SymKind::floordiv: {
    SymInt x = atom.args[0], d = atom.args[1];
    if (x.is_constant() || !x.node()->varies || (!d.is_constant() && d.node()->varies)) return std::nullopt;
    auto bound = upper ? lower(SymInt(0) - x) : lower(x);
    if (!bound) return std::nullopt;
    return floordiv(upper ? SymInt(0) - *bound : *bound, d);
  }
  default: return std::nullopt;
  }
}

/// A lower bound of e without loop variables.
std::optional<SymInt> Prover::lower(SymInt e) {
  while (!e.is_constant() && e.node()->varies) {
    if (fuel_-- <= 0) return std::nullopt;
    auto p = pick(e, true);
    if (!p) return std::nullopt;
    std::optional<SymInt> bound;
    if (is_min_max(*p->atom)) {
      // One side of a min is an upper bound of it, one of a max a lower bound.
      if ((p->atom->kind == SymKind::max) != p->positive) return std::nullopt;
      SymInt x = p->atom->args[0], y = p->atom->args[1];
      bound = y.is_constant() || !y.node()->varies ? y : x;
    } else {
      bound = bound_of(*p->atom, !p->positive);
    }
    if (!bound) return std::nullopt;
    e = p->rest + p->coefficient * *bound;
  }
  return e;
}

/// Writes every factor as least + x, or greatest - x where it only occurs in negative terms, with x >= 0,
/// multiplies out, and bounds what is still negative by numbers.
bool Prover::prove_shifted(const Sum& s) {
  using Wide = __int128;
  struct Shift {
    int64_t base, width;
    bool down;
  };
  struct ById {
    bool operator()(const SymInts& a, const SymInts& b) const {
      return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                          [](SymInt x, SymInt y) { return x.node()->id < y.node()->id; });
    }
  };
  constexpr Wide kLimit = Wide{1} << 62;
  auto scale = [&](Wide& v, int64_t by) {
    v *= by;
    return -kLimit <= v && v <= kLimit;
  };
  if (s.terms.size() > kMaxShiftedTerms || s.constant > kLimit || s.constant < -kLimit) return false;
  std::unordered_map<const SymNode*, Shift> shifts;
  std::set<const SymNode*> in_positive;
  for (auto [coefficient, term] : s.terms)
    if (coefficient > 0)
      for (SymInt f : factors_of(term)) in_positive.insert(f.node());
  std::map<SymInts, Wide, ById> shifted{{{}, s.constant}};
  for (auto [coefficient, term] : s.terms) {
    SymInts factors = factors_of(term);
    if (factors.size() > kMaxShiftedDegree || coefficient > kLimit || coefficient < -kLimit) return false;
    std::vector<std::pair<SymInts, Wide>> parts{{{}, coefficient}};
    for (SymInt f : factors) {
      Bounds b = bounds(f);
      if (b.lo == -kInfinity) return false;
      Shift shift{b.lo, kInfinity, b.hi < kMaxSize && !in_positive.contains(f.node())};
      if (shift.down) shift.base = b.hi;
      if (b.hi != kInfinity && __builtin_sub_overflow(b.hi, b.lo, &shift.width)) shift.width = kInfinity;
      shifts[f.node()] = shift;
      for (size_t i = 0, n = parts.size(); i < n; ++i) {
        auto [monomial, c] = parts[i];
        if (!scale(parts[i].second, shift.base)) return false;
        monomial.push_back(f);
        parts.emplace_back(std::move(monomial), shift.down ? -c : c);
      }
    }
    for (auto& [monomial, c] : parts)
      if (!scale(shifted[monomial] += c, 1)) return false;
  }
  Wide least = 0;
  for (auto& [monomial, c] : shifted) {
    if (c >= 0 && !monomial.empty()) continue;
    Wide bound = c;
    for (SymInt f : monomial) {
      int64_t width = shifts[f.node()].width;
      if (width == kInfinity || !scale(bound, width)) return false;
    }
    if (!scale(least += bound, 1)) return false;
  }
  return least >= 0;
}

} // namespace symint

bool provably_nonnegative(SymInt e, const Extents& extents) {
  if (e.is_constant()) return e.constant() >= 0;
  return symint::Prover(extents).nonnegative(e);
}

bool provably_positive(SymInt e, const Extents& extents) {
  if (e.is_constant()) return e.constant() > 0;
  return symint::Prover(extents).below(0, e);
}

} // namespace tbx::ir
