// Numeric bounds of SymInt expressions by interval arithmetic.
#include <algorithm>

#include "ir/symint_impl.h"

namespace tbx::ir {
namespace symint {
namespace {

/// Saturating: beyond the int64 range means unbounded, and unbounded stays so.
int64_t saturate(__int128 v) {
  return v > kInfinity ? kInfinity : v < -kInfinity ? -kInfinity : static_cast<int64_t>(v);
}

bool is_infinite(int64_t v) { return v == kInfinity || v <= -kInfinity; }

/// For lower (upper) bounds a sum with an unbounded part is unbounded below (above).
int64_t add(int64_t a, int64_t b, int64_t unbounded) {
  if (a == unbounded || b == unbounded) return unbounded;
  return saturate(static_cast<__int128>(a) + b);
}

int64_t mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (is_infinite(a) || is_infinite(b)) return (a < 0) == (b < 0) ? kInfinity : -kInfinity;
  return saturate(static_cast<__int128>(a) * b);
}

int64_t quotient(int64_t a, int64_t b) {
  if (is_infinite(a)) return a;
  if (b == kInfinity) return a < 0 ? -1 : 0;
  return floor_div(a, b);
}

Bounds of_corners(int64_t (*op)(int64_t, int64_t), Bounds x, Bounds y) {
  int64_t p[] = {op(x.lo, y.lo), op(x.lo, y.hi), op(x.hi, y.lo), op(x.hi, y.hi)};
  return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
}

/// A lower bound of +infinity (or an upper one of -infinity) would no longer be one after a division.
Bounds finite_side(Bounds b) { return {std::min(b.lo, kInfinity - 1), std::max(b.hi, 1 - kInfinity)}; }

Bounds remainder(Bounds a, Bounds divisor) {
  int64_t d = std::max<int64_t>(divisor.lo, 1); // at least
  if (a.lo >= 0 && a.hi < d) return a;
  int64_t hi = std::max<int64_t>(0, add(divisor.hi, -1, kInfinity));
  if (a.lo >= 0) return {0, std::min(hi, a.hi)};
  // A constant divisor and a range within one period: the remainders have no gap.
  if (divisor.lo == divisor.hi && !is_infinite(a.lo) && !is_infinite(a.hi) && d == divisor.lo &&
      floor_div(a.lo, d) == floor_div(a.hi, d))
    return {floor_mod(a.lo, d), floor_mod(a.hi, d)};
  return {0, hi};
}

} // namespace

const Extents& no_extents() {
  static const Extents none;
  return none;
}

Prover::Prover(const Extents& extents) : extents_(extents) {
  for (SymInt e : extents.vars) assume_at_least(e, 1);
  for (SymInt e : extents.rvars) assume_at_least(e, 1);
}

/// Notes what follows for the parts of e from lo <= e.
void Prover::assume_at_least(SymInt e, int64_t lo) {
  if (e.is_constant() || is_infinite(lo)) return;
  const SymNode& n = *e.node();
  auto [it, is_new] = least_.try_emplace(&n, lo);
  it->second = std::max(it->second, lo);
  switch (n.kind) {
  case SymKind::mul:
    // A positive product of nonnegative factors has no factor 0.
    if (lo >= 1 && std::all_of(n.args.begin(), n.args.end(), [&](SymInt f) { return bounds(f).lo >= 0; }))
      for (SymInt f : n.args) assume_at_least(f, 1);
    break;
  case SymKind::add: {
    auto [coefficient, term] = n.terms[0];
    int64_t left;
    if (n.terms.size() == 1 && coefficient > 0 && !__builtin_sub_overflow(lo, n.constant, &left) &&
        !is_infinite(left))
      assume_at_least(SymInt(term), -quotient(-left, coefficient));
    break;
  }
  case SymKind::floordiv:
    if (n.args[1].is_constant()) assume_at_least(n.args[0], mul(lo, n.args[1].constant()));
    break;
  case SymKind::min:
    for (SymInt x : n.args) assume_at_least(x, lo);
    break;
  default: break;
  }
  bounds_.clear();
}

/// None of what has no elements: an index of it must not become a constant, since what is inlined into a nest
/// that picks elements by data may only be read behind the check of that index.
std::optional<SymInt> Prover::extent_of(const SymNode& n) const {
  auto unless_empty = [](SymInt e) { return e.is(0) ? std::nullopt : std::optional(e); };
  if (n.kind == SymKind::indirect) return unless_empty(n.args[0]);
  if (n.kind != SymKind::var && n.kind != SymKind::rvar) return std::nullopt;
  const SymInts& sizes = n.kind == SymKind::var ? extents_.vars : extents_.rvars;
  if (static_cast<size_t>(n.number) >= sizes.size()) return std::nullopt;
  return unless_empty(sizes[n.number]);
}

Bounds Prover::bounds(SymInt e) {
  if (e.is_constant()) return finite_side({e.constant(), e.constant()});
  if (auto it = bounds_.find(e.node()); it != bounds_.end()) return it->second;
  Bounds b = finite_side(compute(*e.node()));
  if (auto it = least_.find(e.node()); it != least_.end())
    b = {std::max(b.lo, it->second), std::max(b.hi, it->second)};
  bounds_.emplace(e.node(), b);
  return b;
}

Bounds Prover::compute(const SymNode& n) {
  switch (n.kind) {
  case SymKind::symbol: return {n.lo, n.hi};
  case SymKind::var:
  case SymKind::rvar:
  case SymKind::indirect: {
    auto extent = extent_of(n);
    if (!extent) return {0, kMaxSize}; // no loop is longer than the largest size
    // An extent over loop variables could in turn be bounded by this one.
    if (!extent->is_constant() && extent->node()->varies) return {0, kMaxSize};
    return {0, std::max<int64_t>(0, add(bounds(*extent).hi, -1, kInfinity))};
  }
  case SymKind::add: {
    Bounds sum{n.constant, n.constant};
    for (auto [coefficient, term] : n.terms) {
      Bounds t = of_corners(mul, bounds(SymInt(term)), {coefficient, coefficient});
      sum = {add(sum.lo, t.lo, -kInfinity), add(sum.hi, t.hi, kInfinity)};
    }
    return sum;
  }
  case SymKind::mul: {
    Bounds product{1, 1};
    for (SymInt f : n.args) product = of_corners(mul, product, bounds(f));
    return product;
  }
  case SymKind::floordiv: {
    Bounds d = bounds(n.args[1]);
    return of_corners(quotient, bounds(n.args[0]), {std::max<int64_t>(1, d.lo), std::max<int64_t>(1, d.hi)});
  }
  case SymKind::mod: return remainder(bounds(n.args[0]), bounds(n.args[1]));
  case SymKind::min:
  case SymKind::max: {
    Bounds a = bounds(n.args[0]), b = bounds(n.args[1]);
    if (n.kind == SymKind::min) return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
  }
  }
  return {-kInfinity, kInfinity};
}

} // namespace symint

Bounds bounds_of(SymInt e, const Extents& extents) {
  if (e.is_constant()) return {e.constant(), e.constant()};
  return symint::Prover(extents).bounds(e);
}

} // namespace tbx::ir
