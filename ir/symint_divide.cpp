// floordiv and mod: canonical construction, and the rules that need to know ranges.
#include <algorithm>
#include <numeric>

#include "ir/symint_impl.h"

namespace tbx::ir {
namespace symint {
namespace {

constexpr int kMaxSteps = 64;    ///< of a division by a sum
constexpr size_t kMaxTerms = 64; ///< of dividends that are split by range; longer sums stay as they are

SymInt make_division(SymKind kind, SymInt a, SymInt b) {
  SymNode n{};
  n.kind = kind;
  n.args = {a, b};
  return SymInt((a.is_constant() ? b : a).node()->context->impl().intern(std::move(n)));
}

/// Order of monomials that multiplication keeps, as long division needs it: by degree, then lexicographic.
bool is_greater(const SymNode* s, const SymNode* t) {
  SymInts a = factors_of(s), b = factors_of(t);
  if (a.size() != b.size()) return a.size() > b.size();
  auto by_id = [](SymInt x, SymInt y) { return x.node()->id < y.node()->id; };
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), by_id);
}

/// Division by a sum. `exact`: polynomial long division. Otherwise takes q*b off as long as that makes the
/// number of terms smaller, which leaves in the rest what is not a multiple.
Division divide_by_sum(SymInt a, SymInt b, bool exact) {
  auto greater = [](const auto& s, const auto& t) { return is_greater(s.second, t.second); };
  const Sum divisor = sum_of(b);
  const auto lead = *std::min_element(divisor.terms.begin(), divisor.terms.end(), greater);
  const SymInts lead_factors = factors_of(lead.second);
  auto size_of = [](const Sum& s) { return s.terms.size() + (s.constant != 0); };
  Sum quotient, s = sum_of(a);
  for (int step = 0; step < kMaxSteps; ++step) {
    bool progress = false;
    std::sort(s.terms.begin(), s.terms.end(), greater);
    for (auto [coefficient, term] : s.terms) {
      if (coefficient == std::numeric_limits<int64_t>::min() || coefficient % lead.first != 0) continue;
      auto others = without_factors(factors_of(term), lead_factors);
      if (!others && exact) break;
      if (!others) continue;
      SymInt q = make_product(*others) * SymInt(coefficient / lead.first);
      SymInt rest = attempt_or(a, [&] { return a - q * b; });
      Sum left = sum_of(rest);
      if (rest == a || (!exact && size_of(left) >= size_of(s))) continue;
      quotient.add(q);
      a = rest;
      s = std::move(left);
      progress = true;
      break;
    }
    if (!progress) break;
  }
  return {from_sum(std::move(quotient)), a};
}

} // namespace

Division divide_terms(SymInt a, SymInt b) {
  Sum s = sum_of(a), quotient, rest;
  Monomial m;
  if (b.is_constant()) {
    m.coefficient = b.constant();
    quotient.constant = floor_div(s.constant, b.constant());
    rest.constant = floor_mod(s.constant, b.constant());
  } else {
    Sum d = sum_of(b);
    if (d.constant != 0 || d.terms.size() != 1) {
      // A dividend with fewer terms and lower degree is no multiple; most are, one way or the other, obvious.
      if (s.terms.size() + (s.constant != 0) >= 2)
        if (Division whole = divide_by_sum(a, b, true); whole.rest.is(0)) return whole;
      return divide_by_sum(a, b, false);
    }
    m = {d.terms[0].first, factors_of(d.terms[0].second)};
    if (m.coefficient < 0) return {0, a};
    rest.constant = s.constant;
  }
  for (auto [coefficient, term] : s.terms) {
    int64_t whole = coefficient / m.coefficient; // towards zero, so that signs of the rest tell something
    std::optional<SymInts> others;
    if (whole != 0) {
      if (m.factors.empty())
        quotient.terms.emplace_back(whole, term);
      else if ((others = without_factors(factors_of(term), m.factors)))
        quotient.add(make_product(*others), whole);
      else
        whole = 0;
    }
    int64_t left = coefficient - whole * m.coefficient;
    if (left != 0) rest.terms.emplace_back(left, term);
  }
  if (quotient.terms.empty() && quotient.constant == 0) return {0, a};
  return {from_sum(std::move(quotient)), from_sum(std::move(rest))};
}

std::optional<SymInt> divide_exactly(SymInt a, SymInt b) {
  if (a == b) return SymInt(1);
  Division d = divide_terms(a, b);
  return d.rest.is(0) ? std::optional(d.quotient) : std::nullopt;
}

bool Divider::nonnegative(SymInt e) {
  if (e.is_constant()) return e.constant() >= 0;
  return prover_ ? prover_->bounds(e).lo >= 0 : Prover().bounds(e).lo >= 0;
}

/// The one value r//b has, where it can be shown to have only one.
std::optional<SymInt> Divider::constant_quotient(SymInt r, SymInt b) {
  if (r.is(0)) return SymInt(0);
  if (r.is_constant() && b.is_constant()) return SymInt(floor_div(r.constant(), b.constant()));
  if (r.is(-1)) return SymInt(-1);
  if (!prover_) return std::nullopt;
  Bounds range = prover_->bounds(r);
  if (b.is_constant() && range.lo != -kInfinity && range.hi != kInfinity) {
    int64_t q = floor_div(range.lo, b.constant());
    if (q == floor_div(range.hi, b.constant())) return SymInt(q);
  }
  if (range.hi >= 0 && prover_->nonnegative(r) && prover_->below(r, b)) return SymInt(0);
  if (range.lo < 0 && prover_->below(r, 0) && prover_->at_least(r, SymInt(0) - b)) return SymInt(-1);
  return std::nullopt;
}

/// Divisors of b, other than 1 and b, that divide some terms of r: where to split r. Greatest first.
SymInts Divider::common_divisors(SymInt r, SymInt b) {
  SymInts found;
  const Sum s = sum_of(r);
  if (s.terms.size() > kMaxTerms) return found;
  auto offer = [&](SymInt g) {
    if (!g.is(1) && !(g == b) && std::find(found.begin(), found.end(), g) == found.end()) found.push_back(g);
  };
  auto common = [](const Monomial& x, const Monomial& y) {
    return Monomial{std::gcd(x.coefficient, y.coefficient), common_factors(x.factors, y.factors)};
  };
  const Monomial content = content_of(sum_of(b));
  std::vector<Monomial> divisors;
  for (auto [coefficient, term] : s.terms)
    divisors.push_back(common(content, {coefficient, factors_of(term)}));
  std::stable_sort(divisors.begin(), divisors.end(), [](const Monomial& x, const Monomial& y) {
    return std::pair(x.factors.size(), x.coefficient) > std::pair(y.factors.size(), y.coefficient);
  });
  Monomial of_all = content;
  for (const Monomial& d : divisors) {
    of_all = common(of_all, d);
    for (const Monomial& g : {d, of_all}) offer(make_product(g.factors) * SymInt(g.coefficient));
  }
  // A row of a matrix whose width is a sum: the divisor of i*(w + 1) + j is the extent of j.
  if (prover_)
    for (auto [coefficient, term] : s.terms) {
      auto extent = prover_->extent_of(*term);
      if (extent && !extent->is_constant() && coefficient == 1 && divide_exactly(b, *extent)) offer(*extent);
    }
  return found;
}

std::optional<Divider::Split> Divider::split(SymInt r, SymInt b) {
  if (r.is_constant()) return std::nullopt;
  for (SymInt g : common_divisors(r, b)) {
    auto divisor = divide_exactly(b, g);
    if (!divisor || !nonnegative(g)) continue;
    Division d = divide_terms(r, g);
    if (d.rest == r) continue;
    if (auto q = constant_quotient(d.rest, g)) return Split{g, d.quotient + *q, d.rest - *q * g, *divisor};
  }
  return std::nullopt;
}

SymInt Divider::floordiv(SymInt a, SymInt b) {
  TBX_MODEL(!b.is_constant() || b.constant() > 0, "division of a size by {}", b.constant());
  if (b.is(1) || a.is(0)) return a;
  if (a.is_constant() && b.is_constant()) return floor_div(a.constant(), b.constant());
  if (a == b) return 1;
  Division d = divide_terms(a, b);
  return d.quotient + quotient_of_rest(d.rest, b);
}

/// r//b where no term of r is a multiple of b.
SymInt Divider::quotient_of_rest(SymInt r, SymInt b) {
  if (auto q = constant_quotient(r, b)) return *q;
  if (auto s = split(r, b)) return floordiv(s->quotient, s->divisor);
  Sum sum = sum_of(r);
  if (sum.terms.size() == 1 && sum.terms[0].first == 1) {
    const SymNode& n = *sum.terms[0].second;
    // (x//c + k)//b == (x + k*c)//(c*b)
    if (n.kind == SymKind::floordiv) {
      auto nested = attempt_or(std::optional<SymInt>(), [&] {
        SymInt c = n.args[1], x = n.args[0] + SymInt(sum.constant) * c;
        return std::optional(floordiv(x, c * b));
      });
      if (nested) return *nested;
    }
    // (x % (b*n))//b == (x//b) % n
    if (n.kind == SymKind::mod && sum.constant == 0)
      if (auto m = divide_exactly(n.args[1], b)) return mod(floordiv(n.args[0], b), *m);
  }
  return make_division(SymKind::floordiv, r, b);
}

SymInt Divider::mod(SymInt a, SymInt b) {
  TBX_MODEL(!b.is_constant() || b.constant() > 0, "remainder of a size by {}", b.constant());
  if (b.is(1) || a.is(0) || a == b) return 0;
  if (a.is_constant() && b.is_constant()) return floor_mod(a.constant(), b.constant());
  SymInt r = divide_terms(a, b).rest;
  if (auto q = constant_quotient(r, b)) return r - *q * b;
  // (k*(x % n) + y) % b == (k*x + y) % b where b divides k*n
  for (auto [coefficient, term] : sum_of(r).terms) {
    for (SymInt f : factors_of(term)) {
      if (f.node()->kind != SymKind::mod) continue;
      SymInt k = make_product(*without_factors(factors_of(term), {f})) * SymInt(coefficient);
      auto without_mod = attempt_or(std::optional<SymInt>(), [&]() -> std::optional<SymInt> {
        if (!divide_exactly(k * f.node()->args[1], b)) return std::nullopt;
        return mod(r - k * f + k * f.node()->args[0], b);
      });
      if (without_mod) return *without_mod;
    }
  }
  if (auto s = split(r, b)) return s->factor * mod(s->quotient, s->divisor) + s->rest;
  return make_division(SymKind::mod, r, b);
}

namespace {

SymInt cached(SymKind kind, SymInt a, SymInt b) {
  auto& cache = (a.is_constant() ? b : a).node()->context->impl().divisions;
  Context::Impl::DivisionKey key{kind, a, b};
  if (auto it = cache.find(key); it != cache.end()) return it->second;
  SymInt r = kind == SymKind::floordiv ? Divider().floordiv(a, b) : Divider().mod(a, b);
  cache.emplace(key, r);
  return r;
}

} // namespace
} // namespace symint

SymInt floordiv(SymInt a, SymInt b) {
  if (b.is_constant() && (a.is_constant() || b.constant() <= 1)) return symint::Divider().floordiv(a, b);
  return symint::cached(SymKind::floordiv, a, b);
}

SymInt mod(SymInt a, SymInt b) {
  if (b.is_constant() && (a.is_constant() || b.constant() <= 1)) return symint::Divider().mod(a, b);
  return symint::cached(SymKind::mod, a, b);
}

SymInt ceildiv(SymInt a, SymInt b) { return floordiv(a + b - SymInt(1), b); }

bool provably_divisible(SymInt a, SymInt b) {
  if (b.is(1) || a.is(0) || a == b) return true;
  if (b.is_constant() && b.constant() <= 0) return false;
  return symint::attempt_or(false, [&] { return mod(a, b).is(0); });
}

} // namespace tbx::ir
