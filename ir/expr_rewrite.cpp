// Walks over Expr DAGs: each visits every node once, without native recursion along operand chains.
#include <algorithm>

#include "base/budget.h"
#include "base/error.h"
#include "ir/expr.h"
#include "ir/rewriter.h"
#include "ir/seen.h"
#include "ir/symint_impl.h"

namespace tbx::ir {
namespace {

/// Direct operands in the widest sense: arguments and the values inside indirect indices.
template <class F> void for_each_operand(Expr e, F&& fn) {
  for (int i = 0; i < e->num_args; ++i) fn(e->args[i]);
  for (SymInt index : e->indices)
    if (has_indirect(index)) symint::for_each_indirect(index, [&](const SymNode& n) { fn(n.value); });
}

/// Operands first. Explicit stack: chains may be tens of thousands long. `enter` says whether a node is
/// wanted and new, `leave` sees it behind its operands.
template <class Enter, class Leave>
void post_order(std::span<const Expr> roots, Enter&& enter, Leave&& leave) {
  std::vector<std::pair<Expr, bool>> stack;
  stack.reserve(32);
  for (size_t r = roots.size(); r-- > 0;)
    if (roots[r]) stack.emplace_back(roots[r], false);
  while (!stack.empty()) {
    check_stop_often();
    auto [e, done] = stack.back();
    stack.pop_back();
    if (done) {
      leave(e);
      continue;
    }
    if (!enter(e)) continue;
    stack.emplace_back(e, true);
    size_t first = stack.size();
    for_each_operand(e, [&](Expr o) { stack.emplace_back(o, false); });
    std::reverse(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  }
}

template <class Leave> void each_once(std::span<const Expr> roots, Leave&& leave) {
  Seen seen;
  post_order(
      roots, [&](Expr e) { return seen.insert(e); }, leave);
}

} // namespace

/// The node with new operands and indices, through the constructors (so it folds again).
Expr Rewriter::rebuild(Expr e) {
  Context& c = *e->context;
  bool same = true;
  Expr args[3] = {nullptr, nullptr, nullptr};
  for (int i = 0; i < e->num_args; ++i) {
    args[i] = values_.at(e->args[i]);
    same &= args[i] == e->args[i];
  }
  SymInts indices;
  for (SymInt index : e->indices) {
    indices.push_back((*this)(index));
    same &= indices.back() == index;
  }
  if (same) return e;
  switch (e->op) {
  case Op::load: return c.load(e->buffer, e->dtype, std::move(indices), args[0]);
  case Op::index: return c.index(indices[0]);
  case Op::cast: return c.cast(args[0], e->dtype);
  case Op::round_to: return c.round_to(args[0], e->format, e->bits != 0);
  case Op::bitcast: return c.bitcast(args[0], e->dtype);
  case Op::where: return c.where(args[0], args[1], args[2]);
  default: break;
  }
  return is_unary(e->op) ? c.unary(e->op, args[0]) : c.binary(e->op, args[0], args[1]);
}

Expr Rewriter::operator()(Expr e) {
  if (auto it = values_.find(e); it != values_.end()) return it->second;
  std::vector<Expr> order;
  Seen seen;
  post_order(
      std::span(&e, 1), [&](Expr n) { return !values_.contains(n) && seen.insert(n); },
      [&](Expr n) { order.push_back(n); });
  for (Expr n : order) {
    Expr r = rebuild(n);
    // What folds to a load folds to what an operand has become, which finish() has seen: a buffer that it has
    // renamed would be renamed again.
    if (r->op != Op::load || n->op == Op::load) r = finish(r);
    values_[n] = r;
    if (to_fixed_point_) values_.try_emplace(r, r);
  }
  return values_.at(e);
}

void visit(std::span<const Expr> es, const std::function<void(Expr)>& fn) { each_once(es, fn); }

void visit(Expr e, const std::function<void(Expr)>& fn) { visit(std::span(&e, 1), fn); }

namespace {

class FunctionRewriter : public Rewriter {
public:
  explicit FunctionRewriter(const std::function<Expr(Expr)>& fn) : fn_(fn) {}

protected:
  Expr finish(Expr e) override { return fn_(e); }

private:
  const std::function<Expr(Expr)>& fn_;
};

/// Also decides comparisons of index values by the extents.
class ExprSimplifier : public IndexSimplifier {
public:
  using IndexSimplifier::IndexSimplifier;

protected:
  Expr finish(Expr e) override {
    if (!is_comparison(e->op) || e->args[0]->dtype != DType::i64) return e;
    auto a = as_index(e->args[0]), b = as_index(e->args[1]);
    if (!a || !b) return e;
    auto decide = [&](std::optional<bool> known) { return known ? e->context->boolean(*known) : e; };
    switch (e->op) {
    case Op::less: return decide(is_less(*a, *b));
    case Op::greater: return decide(is_less(*b, *a));
    case Op::greater_equal: return decide(negated(is_less(*a, *b)));
    case Op::less_equal: return decide(negated(is_less(*b, *a)));
    case Op::equal: return decide(are_equal(*a, *b));
    case Op::not_equal: return decide(negated(are_equal(*a, *b)));
    default: return e;
    }
  }

private:
  static std::optional<SymInt> as_index(Expr x) {
    if (x->op == Op::index) return x->indices[0];
    if (x->op == Op::constant) return SymInt(x->as_int());
    return std::nullopt;
  }
  static std::optional<bool> negated(std::optional<bool> b) { return b ? std::optional(!*b) : b; }
  std::optional<bool> is_less(SymInt a, SymInt b) {
    if (proves_below(a, b)) return true;
    if (proves_at_least(a, b)) return false;
    return std::nullopt;
  }
  std::optional<bool> are_equal(SymInt a, SymInt b) {
    if (a == b) return true;
    if (proves_below(a, b) || proves_below(b, a)) return false;
    if (proves_at_least(a, b) && proves_at_least(b, a)) return true;
    return std::nullopt;
  }
};

} // namespace

Expr rewrite(Expr e, const std::function<Expr(Expr)>& fn) { return FunctionRewriter(fn)(e); }

Expr substitute(Expr e, const Substitution& s) { return Substituter(s)(e); }

Expr simplify(Expr e, const Extents& extents) { return ExprSimplifier(extents)(e); }

Expr mask_loads(Expr e, Expr mask) {
  return rewrite(e, [&](Expr n) {
    if (n->op != Op::load) return n;
    Expr both = n->mask() ? n->context->binary(Op::logical_and, n->mask(), mask) : mask;
    return n->context->load(n->buffer, n->dtype, n->indices, both);
  });
}

ExprCounts count(std::span<const Expr> es) {
  ExprCounts counts;
  each_once(es, [&](Expr e) {
    if (e->op == Op::load) {
      ++counts.loads;
    } else if (e->op > Op::local) {
      ++counts.ops;
      counts.expensive += is_expensive(e->op);
    }
  });
  return counts;
}

} // namespace tbx::ir
