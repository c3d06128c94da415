// Numeric bounds and proofs about SymInt expressions.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "ir/symint.h"

namespace tbx::ir {
namespace {

constexpr int64_t kInf = std::numeric_limits<int64_t>::max();

/// Saturating arithmetic: beyond the int64 range means "unbounded".
int64_t saturate(__int128 v) {
  if (v > kInf) return kInf;
  if (v < -kInf) return -kInf;
  return static_cast<int64_t>(v);
}
int64_t add(int64_t a, int64_t b) {
  if (a == kInf || b == kInf) return kInf;
  if (a == -kInf || b == -kInf) return -kInf;
  return saturate(static_cast<__int128>(a) + b);
}
int64_t mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  return saturate(static_cast<__int128>(a) * b);
}
int64_t floor_div(int64_t a, int64_t b) {
  if (a == kInf || a == -kInf) return a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Bounds scale(Bounds x, Bounds y) {
  int64_t p[] = {mul(x.lo, y.lo), mul(x.lo, y.hi), mul(x.hi, y.lo), mul(x.hi, y.hi)};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}

class Bounder {
 public:
  explicit Bounder(const Extents& extents) : extents_(extents) {}

  Bounds of(SymInt e) {
    if (e.is_constant()) return {e.constant(), e.constant()};
    const SymNode* n = e.node();
    if (auto it = memo_.find(n); it != memo_.end()) return it->second;
    Bounds b = compute(*n);
    memo_[n] = b;
    return b;
  }

 private:
  Bounds below(SymInt extent) { return {0, std::max<int64_t>(0, add(of(extent).hi, -1))}; }

  Bounds compute(const SymNode& n) {
    switch (n.kind) {
      case SymKind::symbol: return {n.lo, n.hi};
      case SymKind::var:
        return n.number < static_cast<int>(extents_.vars.size()) ? below(extents_.vars[n.number]) : Bounds{0, kMaxSize};
      case SymKind::rvar:
        return n.number < static_cast<int>(extents_.rvars.size()) ? below(extents_.rvars[n.number]) : Bounds{0, kMaxSize};
      case SymKind::indirect: return below(n.args[0]);
      case SymKind::add: {
        Bounds b{n.constant, n.constant};
        for (auto [coefficient, term] : n.terms) {
          Bounds t = scale(of(SymInt(term)), {coefficient, coefficient});
          b = {add(b.lo, t.lo), add(b.hi, t.hi)};
        }
        return b;
      }
      case SymKind::mul: {
        Bounds b{1, 1};
        for (SymInt f : n.args) b = scale(b, of(f));
        return b;
      }
      case SymKind::floordiv: {
        Bounds a = of(n.args[0]), d = of(n.args[1]);
        int64_t lo_d = std::max<int64_t>(1, d.lo), hi_d = std::max<int64_t>(1, d.hi);
        int64_t q[] = {floor_div(a.lo, lo_d), floor_div(a.lo, hi_d), floor_div(a.hi, lo_d), floor_div(a.hi, hi_d)};
        return {*std::min_element(q, q + 4), *std::max_element(q, q + 4)};
      }
      case SymKind::mod: {
        Bounds a = of(n.args[0]), d = of(n.args[1]);
        int64_t hi = std::max<int64_t>(0, add(d.hi, -1));
        if (a.lo >= 0) hi = std::min(hi, a.hi);
        return {0, hi};
      }
      case SymKind::min: {
        Bounds a = of(n.args[0]), b = of(n.args[1]);
        return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
      }
      case SymKind::max: {
        Bounds a = of(n.args[0]), b = of(n.args[1]);
        return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
      }
    }
    return {-kInf, kInf};
  }

  const Extents& extents_;
  std::unordered_map<const SymNode*, Bounds> memo_;
};

/// A lower bound of `e` that is free of loop variables: each is replaced by 0 or extent - 1, whichever is smaller for
/// the sign of its coefficient. False when a variable is not linear or its coefficient has no known sign.
bool eliminate_variables(SymInt& e, const Extents& extents) {
  // Inner loops may have extents that mention outer variables never; one pass per variable is enough.
  auto eliminate = [&](SymKind kind, const SymInts& sizes) {
    bool good = true;
    std::vector<const SymNode*> variables;
    visit(e, [&](const SymNode& n) {
      if ((n.kind == kind && n.number < static_cast<int>(sizes.size())) ||
          (kind == SymKind::var && n.kind == SymKind::indirect))
        variables.push_back(&n);
    });
    for (const SymNode* v : variables) {
      if (!depends_on(e, v)) continue;
      auto affine = affine_in(e, v);
      if (!affine) {
        good = false;
        continue;
      }
      SymInt extent = v->kind == SymKind::indirect ? v->args[0] : sizes[v->number];
      Bounds c = bounds_of(affine->coefficient, extents);
      if (c.lo >= 0) {
        e = affine->rest;
      } else if (c.hi <= 0) {
        e = affine->rest + affine->coefficient * (extent - SymInt(1));
      } else {
        good = false;
      }
    }
    return good;
  };
  bool a = eliminate(SymKind::rvar, extents.rvars);
  bool b = eliminate(SymKind::var, extents.vars);
  return a && b;
}

}  // namespace

Bounds bounds_of(SymInt e, const Extents& extents) { return Bounder(extents).of(e); }

namespace {

/// `budget` bounds the case splits over nested min and max.
bool prove_nonnegative(SymInt e, const Extents& extents, int budget) {
  if (e.is_constant()) return e.constant() >= 0;
  if (bounds_of(e, extents).lo >= 0) return true;
  if (budget == 0) return false;
  if (has_loop_variable(e) || has_indirect(e)) {
    SymInt bound = e;
    eliminate_variables(bound, extents);
    return !(bound == e) && prove_nonnegative(bound, extents, budget - 1);
  }
  const SymNode* n = e.node();
  if (n->kind != SymKind::add) return false;
  for (auto [coefficient, term] : n->terms) {
    bool is_min = term->kind == SymKind::min, is_max = term->kind == SymKind::max;
    if (!is_min && !is_max) continue;
    SymInt rest = e - SymInt(coefficient) * SymInt(term);
    SymInt x = rest + SymInt(coefficient) * term->args[0], y = rest + SymInt(coefficient) * term->args[1];
    // coefficient*min(x, y) is the larger of both for a negative coefficient, the smaller for a positive one.
    bool either = (is_min && coefficient < 0) || (is_max && coefficient > 0);
    bool px = prove_nonnegative(x, extents, budget - 1);
    if (px && either) return true;
    if ((px || either) && prove_nonnegative(y, extents, budget - 1)) return true;
    budget -= 1;
    if (budget <= 0) return false;
  }
  return false;
}

}  // namespace

bool provably_nonnegative(SymInt e, const Extents& extents) { return prove_nonnegative(e, extents, 4); }

bool provably_positive(SymInt e, const Extents& extents) { return provably_nonnegative(e - SymInt(1), extents); }

}  // namespace tbx::ir
