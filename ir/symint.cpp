// Canonical construction of SymInt expressions: sums of coefficient * term, products, floordiv, mod, min, max.
#include "ir/symint.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ir/context_impl.h"

namespace tbx::ir {
namespace {

constexpr size_t kMaxExpansion = 64;  ///< terms of a product that is still multiplied out

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
int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }

/// A sum under construction: constant + sum of coefficient * term, terms by node id.
struct Sum {
  int64_t constant = 0;
  std::vector<std::pair<int64_t, const SymNode*>> terms;
};

Sum sum_of(SymInt e) {
  if (e.is_constant()) return {e.constant(), {}};
  if (e.node()->kind == SymKind::add) return {e.node()->constant, e.node()->terms};
  return {0, {{1, e.node()}}};
}

void add_scaled(Sum& s, const Sum& other, int64_t factor) {
  if (factor == 0) return;  // a term with coefficient 0 is not canonical
  s.constant = checked_add(s.constant, checked_mul(other.constant, factor));
  std::vector<std::pair<int64_t, const SymNode*>> merged;
  merged.reserve(s.terms.size() + other.terms.size());
  size_t i = 0, j = 0;
  while (i < s.terms.size() || j < other.terms.size()) {
    if (j == other.terms.size() || (i < s.terms.size() && s.terms[i].second->id < other.terms[j].second->id)) {
      merged.push_back(s.terms[i++]);
    } else if (i == s.terms.size() || other.terms[j].second->id < s.terms[i].second->id) {
      merged.emplace_back(checked_mul(other.terms[j].first, factor), other.terms[j].second);
      ++j;
    } else {
      int64_t c = checked_add(s.terms[i].first, checked_mul(other.terms[j].first, factor));
      if (c != 0) merged.emplace_back(c, s.terms[i].second);
      ++i;
      ++j;
    }
  }
  s.terms = std::move(merged);
}

SymInt from_sum(Sum s);

/// c*(x//c) + x%c -> x, where both have equal coefficients around them.
bool recombine(Sum& s) {
  for (size_t i = 0; i < s.terms.size(); ++i) {
    const SymNode* m = s.terms[i].second;
    if (m->kind != SymKind::mod) continue;
    SymInt x = m->args[0], c = m->args[1];
    SymInt q = floordiv(x, c);
    SymInt whole = q * c;  // its terms, times the coefficient of the mod, must be in the sum
    Sum w = sum_of(whole);
    if (w.terms.empty()) continue;
    bool contained = true;
    for (auto& [cw, term] : w.terms) {
      auto it = std::find_if(s.terms.begin(), s.terms.end(), [&, t = term](auto& p) { return p.second == t; });
      contained &= it != s.terms.end() && it->first == checked_mul(cw, s.terms[i].first);
    }
    if (!contained) continue;
    int64_t k = s.terms[i].first;
    Sum mod_term{0, {{1, m}}};
    add_scaled(s, w, -k);
    add_scaled(s, mod_term, -k);
    add_scaled(s, sum_of(x), k);
    return true;
  }
  return false;
}


SymInt from_sum(Sum s) {
  bool has_mod = std::any_of(s.terms.begin(), s.terms.end(), [](auto& t) { return t.second->kind == SymKind::mod; });
  if (has_mod && s.terms.size() > 1)
    while (recombine(s)) {
    }
  if (s.terms.empty()) return s.constant;
  if (s.constant == 0 && s.terms.size() == 1 && s.terms[0].first == 1) return SymInt(s.terms[0].second);
  SymNode n{};
  n.kind = SymKind::add;
  n.constant = s.constant;
  n.terms = std::move(s.terms);
  Context* c = n.terms.front().second->context;
  return SymInt(c->impl().intern(std::move(n)));
}

/// Factors of a term that is not a sum.
std::vector<SymInt> factors_of(const SymNode* n) {
  return n->kind == SymKind::mul ? n->args : std::vector<SymInt>{SymInt(n)};
}

const SymNode* product_term(const SymNode* a, const SymNode* b) {
  std::vector<SymInt> f = factors_of(a), g = factors_of(b);
  f.insert(f.end(), g.begin(), g.end());
  std::sort(f.begin(), f.end(), [](SymInt x, SymInt y) { return x.node()->id < y.node()->id; });
  SymNode n{};
  n.kind = SymKind::mul;
  n.args = std::move(f);
  return a->context->impl().intern(std::move(n));
}

/// The sum as one opaque factor: used when multiplying out would explode.
const SymNode* as_factor(SymInt e) { return e.node(); }

SymInt two(SymKind kind, SymInt a, SymInt b) {
  SymNode n{};
  n.kind = kind;
  n.args = {a, b};
  Context* c = a.is_constant() ? b.node()->context : a.node()->context;
  return SymInt(c->impl().intern(std::move(n)));
}

/// term / divisor when `divisor` occurs among the factors; nullopt otherwise.
std::optional<SymInt> cancel(const SymNode* term, SymInt divisor) {
  std::vector<SymInt> f = factors_of(term);
  std::vector<SymInt> d = divisor.is_constant() ? std::vector<SymInt>{} : factors_of(divisor.node());
  for (SymInt x : d) {
    auto it = std::find(f.begin(), f.end(), x);
    if (it == f.end()) return std::nullopt;
    f.erase(it);
  }
  SymInt r = 1;
  for (SymInt x : f) r = r * x;
  return r;
}

/// Divisor as coefficient * symbolic part (a divisor that is a sum of several terms has coefficient 1).
std::pair<int64_t, SymInt> split_divisor(SymInt d) {
  Sum s = sum_of(d);
  if (s.constant == 0 && s.terms.size() == 1) return {s.terms[0].first, SymInt(s.terms[0].second)};
  return {1, d};
}

/// Splits a into quotient * b + rest, moving every term that b provably divides into the quotient.
std::pair<SymInt, SymInt> divide_terms(SymInt a, SymInt b) {
  Sum s = sum_of(a), quotient, rest;
  if (b.is_constant()) {
    int64_t c = b.constant();
    quotient.constant = floor_div(s.constant, c);
    rest.constant = floor_mod(s.constant, c);
    for (auto& [coef, term] : s.terms) {
      if (coef % c == 0) {
        quotient.terms.emplace_back(coef / c, term);
      } else {
        rest.terms.emplace_back(coef, term);
      }
    }
    return {from_sum(std::move(quotient)), from_sum(std::move(rest))};
  }
  auto [bc, bs] = split_divisor(b);
  SymInt q = 0, r = s.constant;
  for (auto& [coef, term] : s.terms) {
    if (coef % bc == 0) {
      if (auto c = cancel(term, bs)) {
        q = q + *c * SymInt(coef / bc);
        continue;
      }
    }
    r = r + SymInt(coef) * SymInt(term);
  }
  if (bs.node() && bs.node()->kind == SymKind::add && !r.is_constant()) {
    // The divisor is a sum: a may be a whole multiple of it.
    Sum rs = sum_of(r), ds = sum_of(bs);
    if (!rs.terms.empty() && rs.terms.size() == ds.terms.size() && rs.terms[0].first % ds.terms[0].first == 0) {
      int64_t k = rs.terms[0].first / ds.terms[0].first;
      if (k != 0 && r == bs * SymInt(k)) return {q + SymInt(k), 0};
    }
  }
  return {q, r};
}

}  // namespace

SymInt operator+(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return checked_add(a.constant(), b.constant());
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  Sum s = sum_of(a);
  add_scaled(s, sum_of(b), 1);
  return from_sum(std::move(s));
}

SymInt operator-(SymInt a, SymInt b) {
  if (b.is(0)) return a;
  if (a == b) return 0;
  Sum s = sum_of(a);
  add_scaled(s, sum_of(b), -1);
  return from_sum(std::move(s));
}

SymInt operator*(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return checked_mul(a.constant(), b.constant());
  if (a.is(0) || b.is(0)) return 0;
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  Sum x = sum_of(a), y = sum_of(b);
  if (x.terms.size() * y.terms.size() > kMaxExpansion) return SymInt(product_term(as_factor(a), as_factor(b)));
  Sum r;
  r.constant = checked_mul(x.constant, y.constant);
  add_scaled(r, {0, x.terms}, y.constant);
  add_scaled(r, {0, y.terms}, x.constant);
  for (auto& [cx, tx] : x.terms)
    for (auto& [cy, ty] : y.terms) add_scaled(r, {0, {{checked_mul(cx, cy), product_term(tx, ty)}}}, 1);
  return from_sum(std::move(r));
}

SymInt floordiv(SymInt a, SymInt b) {
  TBX_MODEL(!b.is_constant() || b.constant() > 0, "division of a size by {}", b.constant());
  if (b.is(1) || a.is(0)) return a;
  if (a.is_constant() && b.is_constant()) return floor_div(a.constant(), b.constant());
  if (a == b) return 1;
  auto [q, r] = divide_terms(a, b);
  if (r.is(0)) return q;
  if (r.is_constant() && b.is_constant()) return q + SymInt(floor_div(r.constant(), b.constant()));
  // (x//c)//d == x//(c*d)
  if (!r.is_constant() && r.node()->kind == SymKind::floordiv && b.is_constant() && r.node()->args[1].is_constant())
    return q + floordiv(r.node()->args[0], r.node()->args[1] * b);
  // (g*x + k) // (g*n) == (x + k//g) // n for the common divisor g of coefficients and divisor
  if (b.is_constant() && !r.is_constant()) {
    Sum s = sum_of(r);
    int64_t g = b.constant();
    for (auto& [coef, term] : s.terms) g = std::gcd(g, coef);
    if (g > 1) {
      for (auto& [coef, term] : s.terms) coef /= g;
      s.constant = floor_div(s.constant, g);
      return q + floordiv(from_sum(std::move(s)), b.constant() / g);
    }
  }
  return q + two(SymKind::floordiv, r, b);
}

SymInt mod(SymInt a, SymInt b) {
  TBX_MODEL(!b.is_constant() || b.constant() > 0, "remainder of a size by {}", b.constant());
  if (b.is(1) || a.is(0) || a == b) return 0;
  if (a.is_constant() && b.is_constant()) return floor_mod(a.constant(), b.constant());
  auto [q, r] = divide_terms(a, b);
  if (r.is(0)) return 0;
  if (r.is_constant() && b.is_constant()) return r;
  // (x mod (n*m)) mod n == x mod n
  if (!r.is_constant() && r.node()->kind == SymKind::mod && b.is_constant() && r.node()->args[1].is_constant() &&
      r.node()->args[1].constant() % b.constant() == 0)
    return mod(r.node()->args[0], b);
  if (b.is_constant() && !r.is_constant()) {
    // (g*x) mod (g*n) == g * (x mod n) when everything shares g
    Sum s = sum_of(r);
    int64_t g = std::gcd(b.constant(), s.constant);
    for (auto& [coef, term] : s.terms) g = std::gcd(g, coef);
    if (g > 1 && g < b.constant()) {
      for (auto& [coef, term] : s.terms) coef /= g;
      s.constant /= g;
      return SymInt(g) * mod(from_sum(std::move(s)), b.constant() / g);
    }
  }
  return two(SymKind::mod, r, b);
}

SymInt ceildiv(SymInt a, SymInt b) { return floordiv(a + b - SymInt(1), b); }

SymInt min(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return std::min(a.constant(), b.constant());
  if (a == b) return a;
  if (provably_nonnegative(b - a)) return a;
  if (provably_nonnegative(a - b)) return b;
  if (!b.is_constant() && (a.is_constant() || b.node()->id < a.node()->id)) std::swap(a, b);
  return two(SymKind::min, a, b);
}

SymInt max(SymInt a, SymInt b) {
  if (a.is_constant() && b.is_constant()) return std::max(a.constant(), b.constant());
  if (a == b) return a;
  if (provably_nonnegative(b - a)) return b;
  if (provably_nonnegative(a - b)) return a;
  if (!b.is_constant() && (a.is_constant() || b.node()->id < a.node()->id)) std::swap(a, b);
  return two(SymKind::max, a, b);
}

SymInt product(std::span<const SymInt> xs) {
  SymInt r = 1;
  for (SymInt x : xs) r = r * x;
  return r;
}

bool provably_divisible(SymInt a, SymInt b) {
  if (b.is(1) || a.is(0)) return true;
  if (b.is_constant() && b.constant() <= 0) return false;
  return mod(a, b).is(0);
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

}  // namespace tbx::ir
