// Simplification of SymInt expressions under the extents of loops.
#include <numeric>
#include <unordered_map>

#include "ir/context_impl.h"
#include "ir/symint.h"

namespace tbx::ir {
namespace {

class Simplifier {
 public:
  Simplifier(const Extents& extents, const std::function<SymInt(const SymNode&)>& indirect)
      : extents_(extents), indirect_(indirect) {}

  SymInt of(SymInt e) {
    if (e.is_constant()) return e;
    if (auto it = memo_.find(e.node()); it != memo_.end()) return it->second;
    SymInt r = compute(*e.node());
    memo_[e.node()] = r;
    return r;
  }

 private:
  SymInt compute(const SymNode& n) {
    switch (n.kind) {
      case SymKind::symbol: return SymInt(&n);
      case SymKind::var: return is_single(extents_.vars, n.number) ? SymInt(0) : SymInt(&n);
      case SymKind::rvar: return is_single(extents_.rvars, n.number) ? SymInt(0) : SymInt(&n);
      case SymKind::indirect: return indirect_(n);
      case SymKind::add: {
        SymInt r = n.constant;
        for (auto [coefficient, term] : n.terms) r = r + SymInt(coefficient) * of(SymInt(term));
        return r;
      }
      case SymKind::mul: {
        SymInt r = 1;
        for (SymInt f : n.args) r = r * of(f);
        return r;
      }
      case SymKind::floordiv: return divide(of(n.args[0]), of(n.args[1]), 8);
      case SymKind::mod: return remainder(of(n.args[0]), of(n.args[1]), 8);
      case SymKind::min: {
        SymInt a = of(n.args[0]), b = of(n.args[1]);
        if (provably_nonnegative(b - a, extents_)) return a;
        if (provably_nonnegative(a - b, extents_)) return b;
        return min(a, b);
      }
      case SymKind::max: {
        SymInt a = of(n.args[0]), b = of(n.args[1]);
        if (provably_nonnegative(b - a, extents_)) return b;
        if (provably_nonnegative(a - b, extents_)) return a;
        return max(a, b);
      }
    }
    return SymInt(&n);
  }

  static bool is_single(const SymInts& sizes, int k) { return k < static_cast<int>(sizes.size()) && sizes[k].is(1); }

  bool in_range(SymInt r, SymInt extent) const {
    return provably_nonnegative(r, extents_) && provably_less(r, extent, extents_);
  }

  /// Parts of a divisor by which numerator and divisor may be reduced: (factor, divisor / factor).
  std::vector<std::pair<SymInt, SymInt>> factor_pairs(SymInt a, SymInt b) const {
    std::vector<std::pair<SymInt, SymInt>> pairs;
    auto offer = [&](SymInt f, SymInt rest) {
      if (!f.is(1) && !rest.is(1)) pairs.emplace_back(f, rest);
    };
    if (b.is_constant()) {
      if (a.is_constant() || a.node()->kind != SymKind::add) return pairs;
      for (auto [coefficient, term] : a.node()->terms) {
        int64_t g = std::gcd(coefficient, b.constant());
        if (g > 1 && g < b.constant()) offer(g, b.constant() / g);
      }
      return pairs;
    }
    const SymNode* n = b.node();
    int64_t c = 1;
    if (n->kind == SymKind::add) {
      if (n->constant != 0 || n->terms.size() != 1) return pairs;
      c = n->terms[0].first;
      n = n->terms[0].second;
    }
    if (c > 1) offer(c, SymInt(n));
    std::vector<SymInt> factors = n->kind == SymKind::mul ? n->args : std::vector<SymInt>{SymInt(n)};
    for (size_t i = 0; i < factors.size(); ++i) {
      SymInt rest = c;
      for (size_t j = 0; j < factors.size(); ++j)
        if (j != i) rest = rest * factors[j];
      offer(factors[i], rest);
      if (c > 1 && factors.size() > 1) offer(factors[i] * SymInt(c), floordiv(rest, c));
    }
    return pairs;
  }

  SymInt divide(SymInt a, SymInt b, int budget) {
    SymInt e = floordiv(a, b);
    if (e.is_constant() || budget == 0) return e;
    // e = quotient + floordiv(r, b): improve the division that is left.
    SymInt out = 0;
    bool changed = false;
    auto improve = [&](const SymNode* t) -> SymInt {
      if (t->kind != SymKind::floordiv) return SymInt(t);
      SymInt r = improved(t->args[0], t->args[1], budget);
      changed |= !(r == SymInt(t));
      return r;
    };
    if (e.node()->kind == SymKind::add) {
      out = e.node()->constant;
      for (auto [coefficient, term] : e.node()->terms) out = out + SymInt(coefficient) * improve(term);
    } else {
      out = improve(e.node());
    }
    return changed ? out : e;
  }

  SymInt improved(SymInt a, SymInt b, int budget) {
    if (in_range(a, b)) return 0;
    for (auto [f, rest] : factor_pairs(a, b)) {
      SymInt q = floordiv(a, f), r = a - q * f;
      if (in_range(r, f)) return divide(q, rest, budget - 1);
    }
    // Separate what stays below the divisor: (x + y) // b with x a multiple handled above; try dropping small terms.
    if (auto reduced = drop_small_terms(a, b)) return divide(*reduced, b, budget - 1);
    return floordiv(a, b);
  }

  /// (f*X + r) // (f*d) == X // d when 0 <= r < f: finds f among the coefficients' divisors and gives f*X.
  std::optional<SymInt> drop_small_terms(SymInt a, SymInt b) const {
    if (!b.is_constant() || a.is_constant() || a.node()->kind != SymKind::add) return std::nullopt;
    for (auto [coefficient, unused] : a.node()->terms) {
      int64_t g = std::gcd(coefficient, b.constant());
      if (g <= 1) continue;
      SymInt large = 0, small = 0;
      int64_t k = a.node()->constant;
      int64_t small_constant = ((k % g) + g) % g;
      large = k - small_constant;
      small = small_constant;
      for (auto [c, t] : a.node()->terms) (c % g == 0 ? large : small) += SymInt(c) * SymInt(t);
      if (small.is(0) || !in_range(small, g)) continue;
      return large;
    }
    return std::nullopt;
  }

  SymInt remainder(SymInt a, SymInt b, int budget) {
    SymInt e = mod(a, b);
    if (e.is_constant() || budget == 0) return e;
    const SymNode* n = e.node();
    int64_t scale = 1;
    if (n->kind == SymKind::add && n->constant == 0 && n->terms.size() == 1) {
      scale = n->terms[0].first;
      n = n->terms[0].second;
    }
    if (n->kind != SymKind::mod) return e;
    SymInt x = n->args[0], d = n->args[1];
    if (in_range(x, d)) return SymInt(scale) * x;
    // (f*X + r) mod (f*d) == f*(X mod d) + r when 0 <= r < f
    if (d.is_constant() && !x.is_constant() && x.node()->kind == SymKind::add) {
      for (auto [coefficient, unused] : x.node()->terms) {
        int64_t g = std::gcd(coefficient, d.constant());
        if (g <= 1) continue;
        int64_t k = x.node()->constant, small_constant = ((k % g) + g) % g;
        SymInt large = k - small_constant, small = small_constant;
        for (auto [c, t] : x.node()->terms) (c % g == 0 ? large : small) += SymInt(c) * SymInt(t);
        if (small.is(0) || !in_range(small, g)) continue;
        return SymInt(scale) * (SymInt(g) * remainder(floordiv(large, g), d.constant() / g, budget - 1) + small);
      }
    } else if (!d.is_constant()) {
      for (auto [f, rest] : factor_pairs(x, d)) {
        SymInt q = floordiv(x, f), r = x - q * f;
        if (!in_range(r, f)) continue;
        return SymInt(scale) * (f * remainder(q, rest, budget - 1) + r);
      }
    }
    return e;
  }

  const Extents& extents_;
  const std::function<SymInt(const SymNode&)>& indirect_;
  std::unordered_map<const SymNode*, SymInt> memo_;
};

}  // namespace

SymInt simplify_index(SymInt e, const Extents& extents, const std::function<SymInt(const SymNode&)>& indirect) {
  if (e.is_constant()) return e;
  // A rewrite may expose another one; the number of rounds is small in practice and bounded here.
  for (int round = 0; round < 4; ++round) {
    SymInt next = Simplifier(extents, indirect).of(e);
    if (next == e) break;
    e = next;
  }
  return e;
}

SymInt simplify(SymInt e, const Extents& extents) {
  std::unordered_map<const SymNode*, SymInt> done;
  auto indirect = [&](const SymNode& n) {
    if (auto it = done.find(&n); it != done.end()) return it->second;
    Expr value = simplify(n.value, extents);
    SymInt extent = simplify(n.args[0], extents);
    bool same = value == n.value && extent == n.args[0];
    SymInt r = same ? SymInt(&n) : n.context->indirect(value, extent, false);
    done.emplace(&n, r);
    if (!r.is_constant()) done.emplace(r.node(), r);
    return r;
  };
  return simplify_index(e, extents, indirect);
}

}  // namespace tbx::ir
