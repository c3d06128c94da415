// Canonical construction of SymInt expressions: sums of coefficient * term, products, min and max.
#include "ir/symint.h"

#include <algorithm>
#include <numeric>

#include "ir/symint_impl.h"

namespace tbx::ir {
namespace symint {
namespace {

constexpr size_t kMaxExpansion = 64;     ///< terms of a product that is still multiplied out
constexpr size_t kMaxDegree = 64;        ///< factors of one term; x*x*... from a model would grow without end
constexpr size_t kMaxRecombination = 64; ///< terms of a sum in which c*(x//c) + x%c is looked for

bool by_id(SymInt a, SymInt b) { return a.node()->id < b.node()->id; }

} // namespace

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  TBX_MODEL(!__builtin_add_overflow(a, b, &r), "a size overflows 64 bits: {} + {}", a, b);
  return r;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  TBX_MODEL(!__builtin_mul_overflow(a, b, &r), "a size overflows 64 bits: {} * {}", a, b);
  return r;
}

void Sum::add(SymInt e, int64_t factor) {
  if (e.is_constant()) {
    constant = checked_add(constant, checked_mul(e.constant(), factor));
  } else if (e.node()->kind != SymKind::add) {
    terms.emplace_back(factor, e.node());
  } else {
    constant = checked_add(constant, checked_mul(e.node()->constant, factor));
    for (auto [coefficient, term] : e.node()->terms)
      terms.emplace_back(checked_mul(coefficient, factor), term);
  }
}

void Sum::normalize() {
  auto less = [](const auto& a, const auto& b) { return a.second->id < b.second->id; };
  if (!std::is_sorted(terms.begin(), terms.end(), less)) std::stable_sort(terms.begin(), terms.end(), less);
  size_t out = 0;
  for (size_t i = 0; i < terms.size();) {
    auto [coefficient, term] = terms[i];
    for (++i; i < terms.size() && terms[i].second == term; ++i)
      coefficient = checked_add(coefficient, terms[i].first);
    if (coefficient != 0) terms[out++] = {coefficient, term};
  }
  terms.resize(out);
}

int64_t Sum::coefficient_of(const SymNode* term) const {
  auto it = std::lower_bound(terms.begin(), terms.end(), term->id,
                             [](const auto& t, uint32_t id) { return t.second->id < id; });
  return it != terms.end() && it->second == term ? it->first : 0;
}

Sum sum_of(SymInt e) {
  if (e.is_constant()) return {e.constant(), {}};
  if (e.node()->kind == SymKind::add) return {e.node()->constant, e.node()->terms};
  return {0, {{1, e.node()}}};
}

namespace {

/// s without scale * part; nullopt unless every term of it stands in s with just that coefficient.
std::optional<Sum> without(const Sum& s, SymInt part) {
  Sum p = sum_of(part);
  if (p.terms.empty()) return std::nullopt;
  for (auto [coefficient, term] : p.terms)
    if (s.coefficient_of(term) != coefficient) return std::nullopt;
  Sum rest = s;
  rest.add(part, -1);
  rest.normalize();
  return rest;
}

/// k*c*(x//c) + k*(x%c) -> k*x and k*c*(x//c % n) + k*(x%c) -> k*(x % (c*n)). One step; false when none
/// applies.
bool recombine_step(Sum& s) {
  std::vector<const SymNode*> mods;
  for (auto [coefficient, term] : s.terms)
    for (SymInt f : factors_of(term))
      if (f.node()->kind == SymKind::mod) mods.push_back(f.node());
  for (auto [coefficient, term] : s.terms) {
    for (SymInt m : factors_of(term)) {
      if (m.node()->kind != SymKind::mod) continue;
      SymInt x = m.node()->args[0], c = m.node()->args[1];
      auto others = without_factors(factors_of(term), {m});
      SymInt k = make_product(*others) * SymInt(coefficient), q = floordiv(x, c), kc = k * c;
      auto rest = without(s, k * m);
      if (!rest) continue;
      if (auto all = without(*rest, kc * q)) {
        all->add(k * x);
        s = std::move(*all);
        return true;
      }
      for (const SymNode* outer : mods) {
        if (!(outer->args[0] == q)) continue;
        auto all = without(*rest, kc * SymInt(outer));
        if (!all) continue;
        all->add(k * mod(x, c * outer->args[1]));
        s = std::move(*all);
        return true;
      }
    }
  }
  return false;
}

void recombine(Sum& s) {
  if (s.terms.size() < 2 || s.terms.size() > kMaxRecombination) return;
  bool has_mod = false, has_partner = false; // the partner is a floordiv, or a mod of one
  for (auto [coefficient, term] : s.terms) {
    auto look = [&](const SymNode& n) {
      has_partner |= has_mod && n.kind == SymKind::mod;
      has_partner |= n.kind == SymKind::floordiv;
      has_mod |= n.kind == SymKind::mod;
    };
    if (term->kind == SymKind::mul)
      for (SymInt f : term->args) look(*f.node());
    else
      look(*term);
  }
  if (!has_mod || !has_partner) return;
  auto step = [&] {
    bool done = recombine_step(s);
    if (done) s.normalize();
    return done;
  };
  while (attempt_or(false, step)) {
  }
}

} // namespace

SymInt from_sum(Sum s) {
  s.normalize();
  recombine(s);
  if (s.terms.empty()) return s.constant;
  if (s.constant == 0 && s.terms.size() == 1 && s.terms[0].first == 1) return SymInt(s.terms[0].second);
  SymNode n{};
  n.kind = SymKind::add;
  n.constant = s.constant;
  n.terms = std::move(s.terms);
  auto& context = n.terms.front().second->context->impl();
  return SymInt(context.intern(std::move(n)));
}

SymInts factors_of(const SymNode* term) {
  return term->kind == SymKind::mul ? term->args : SymInts{SymInt(term)};
}

SymInt make_product(SymInts factors) {
  if (factors.empty()) return 1;
  if (factors.size() == 1) return factors[0];
  if (factors.size() > kMaxDegree)
    throw_unsupported("a size is a product of more than {} factors", kMaxDegree);
  SymNode n{};
  n.kind = SymKind::mul;
  n.args = std::move(factors);
  auto& context = n.args[0].node()->context->impl();
  return SymInt(context.intern(std::move(n)));
}

std::optional<SymInts> without_factors(const SymInts& a, const SymInts& b) {
  SymInts rest;
  auto it = b.begin();
  for (SymInt f : a) {
    if (it != b.end() && *it == f)
      ++it;
    else
      rest.push_back(f);
  }
  if (it != b.end()) return std::nullopt;
  return rest;
}

SymInts common_factors(const SymInts& a, const SymInts& b) {
  SymInts common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common), by_id);
  return common;
}

Monomial content_of(const Sum& s) {
  Monomial m{s.constant, {}};
  for (size_t i = 0; i < s.terms.size(); ++i) {
    m.coefficient = std::gcd(m.coefficient, s.terms[i].first);
    if (s.constant != 0) continue;
    SymInts f = factors_of(s.terms[i].second);
    m.factors = i == 0 ? f : common_factors(m.factors, f);
  }
  return m;
}

SymInt make_min_max(SymKind kind, SymInt a, SymInt b) {
  if (!b.is_constant() && (a.is_constant() || by_id(b, a))) std::swap(a, b);
  if (b.is_constant() && a.node()->kind == kind && a.node()->args[1].is_constant()) {
    int64_t x = a.node()->args[1].constant(), y = b.constant();
    a = a.node()->args[0];
    b = kind == SymKind::min ? std::min(x, y) : std::max(x, y);
  }
  SymNode n{};
  n.kind = kind;
  n.args = {a, b};
  return SymInt(a.node()->context->impl().intern(std::move(n)));
}

} // namespace symint

using namespace symint;

SymInt operator+(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return checked_add(a.constant(), b.constant());
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  Sum s = sum_of(a);
  s.add(b);
  return from_sum(std::move(s));
}

SymInt operator-(SymInt a, SymInt b) {
  if (b.is(0)) return a;
  if (a == b) return 0;
  Sum s = sum_of(a);
  if (b.is_constant()) { // not as + (-1)*b: the smallest number has no opposite
    TBX_MODEL(!__builtin_sub_overflow(s.constant, b.constant(), &s.constant), "a size overflows 64 bits");
  } else {
    s.add(b, -1);
  }
  return from_sum(std::move(s));
}

SymInt operator*(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return checked_mul(a.constant(), b.constant());
  if (a.is(0) || b.is(0)) return 0;
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  Sum x = sum_of(a), y = sum_of(b), r;
  auto product_of = [](const SymNode* s, const SymNode* t) {
    SymInts f = factors_of(s), g = factors_of(t), all(f.size() + g.size());
    std::merge(f.begin(), f.end(), g.begin(), g.end(), all.begin(), by_id);
    return make_product(std::move(all)).node();
  };
  auto is_term = [](const Sum& s) { return s.constant == 0 && s.terms.size() == 1; };
  if (x.terms.size() * y.terms.size() > kMaxExpansion && !is_term(x) && !is_term(y))
    return SymInt(product_of(a.node(), b.node()));
  r.constant = checked_mul(x.constant, y.constant);
  if (y.constant != 0)
    for (auto [coefficient, term] : x.terms) r.terms.emplace_back(checked_mul(coefficient, y.constant), term);
  if (x.constant != 0)
    for (auto [coefficient, term] : y.terms) r.terms.emplace_back(checked_mul(coefficient, x.constant), term);
  for (auto [p, s] : x.terms)
    for (auto [q, t] : y.terms) r.terms.emplace_back(checked_mul(p, q), product_of(s, t));
  return from_sum(std::move(r));
}

SymInt min(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return std::min(a.constant(), b.constant());
  if (a == b) return a;
  Prover prover;
  if (prover.at_least(b, a)) return a;
  if (prover.at_least(a, b)) return b;
  return make_min_max(SymKind::min, a, b);
}

SymInt max(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return std::max(a.constant(), b.constant());
  if (a == b) return a;
  Prover prover;
  if (prover.at_least(b, a)) return b;
  if (prover.at_least(a, b)) return a;
  return make_min_max(SymKind::max, a, b);
}

SymInt product(std::span<const SymInt> xs) {
  SymInt r = 1;
  for (SymInt x : xs) r = r * x;
  return r;
}

SymInts contiguous_strides(std::span<const SymInt> sizes) {
  SymInts strides(sizes.size(), SymInt(0));
  SymInt step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step = step * sizes[i];
  }
  return strides;
}

} // namespace tbx::ir
