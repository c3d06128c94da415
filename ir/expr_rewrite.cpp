// Walks over Expr DAGs: each handles every node once, those inside indirect indices included, without native
// recursion along operand chains.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "ir/context_impl.h"
#include "ir/expr.h"

namespace tbx::ir {
namespace {

/// Calls `fn` on the indirect nodes of an index, but not on those inside their values.
template <class F> void for_each_indirect(SymInt index, F&& fn) {
  if (index.is_constant() || index.node()->kind < SymKind::indirect) return;
  if (index.node()->kind == SymKind::indirect && index.node()->args[0].is_constant())
    return fn(*index.node());
  std::unordered_set<const SymNode*> seen;
  std::vector<const SymNode*> stack{index.node()};
  while (!stack.empty()) {
    const SymNode* n = stack.back();
    stack.pop_back();
    if (n->kind < SymKind::indirect || !seen.insert(n).second) continue;
    if (n->kind == SymKind::indirect) fn(*n);
    for (auto& [coefficient, term] : n->terms) stack.push_back(term);
    for (SymInt a : n->args)
      if (!a.is_constant()) stack.push_back(a.node());
  }
}

/// Direct operands in the widest sense: arguments and the values inside indirect indices.
template <class F> void for_each_operand(Expr e, F&& fn) {
  for (int i = 0; i < e->num_args; ++i) fn(e->args[i]);
  for (SymInt index : e->indices) for_each_indirect(index, [&](const SymNode& n) { fn(n.value); });
}

/// All nodes reachable, operands first. Explicit stack: chains may be tens of thousands long.
std::vector<Expr> ordered(std::span<const Expr> roots) {
  std::unordered_set<Expr> seen;
  std::vector<Expr> order;
  std::vector<std::pair<Expr, bool>> stack;
  for (size_t r = roots.size(); r-- > 0;)
    if (roots[r]) stack.emplace_back(roots[r], false);
  std::vector<Expr> operands;
  while (!stack.empty()) {
    auto [e, done] = stack.back();
    stack.pop_back();
    if (done) {
      order.push_back(e);
      continue;
    }
    if (!seen.insert(e).second) continue;
    stack.emplace_back(e, true);
    operands.clear();
    for_each_operand(e, [&](Expr o) { operands.push_back(o); });
    for (size_t i = operands.size(); i-- > 0;)
      if (!seen.contains(operands[i])) stack.emplace_back(operands[i], false);
  }
  return order;
}

/// Rebuilds a DAG bottom-up. Remembers what every node, and every index, became.
class Rebuilder {
public:
  /// What becomes of an index whose indirect values have not been renewed yet.
  using MapIndex = std::function<SymInt(SymInt, Rebuilder&)>;

  explicit Rebuilder(MapIndex map_index) : map_index_(std::move(map_index)) {}

  Expr run(Expr root, const std::function<Expr(Expr)>& fn = {}) {
    for (Expr e : ordered(std::span(&root, 1))) {
      Expr renewed = rebuild(e);
      nodes_[e] = fn ? fn(renewed) : renewed;
    }
    return nodes_.at(root);
  }

  /// An indirect node with its value renewed; `map_extent` renews the extent.
  template <class F> SymInt renew(const SymNode& n, F&& map_extent) {
    auto it = nodes_.find(n.value);
    // A value that is not known was made by this very walk.
    if (it == nodes_.end()) return SymInt(&n);
    SymInt extent = map_extent(n.args[0]);
    if (it->second == n.value && extent == n.args[0]) return SymInt(&n);
    return n.context->indirect(it->second, extent, false);
  }

private:
  SymInt index(SymInt e) {
    if (e.is_constant()) return e;
    auto [it, is_new] = indices_.try_emplace(e.node(), 0);
    if (is_new) it->second = map_index_(e, *this);
    return it->second;
  }

  /// The node with new operands and indices, through the constructors (so it folds again).
  Expr rebuild(Expr e) {
    bool same = true;
    Expr args[3] = {nullptr, nullptr, nullptr};
    for (int i = 0; i < e->num_args; ++i) {
      args[i] = nodes_.at(e->args[i]);
      same &= args[i] == e->args[i];
    }
    SymInts indices;
    for (SymInt i : e->indices) {
      indices.push_back(index(i));
      same &= indices.back() == i;
    }
    if (same) return e;
    Context& c = *e->context;
    switch (e->op) {
    case Op::load: return c.load(e->buffer, e->dtype, std::move(indices), args[0]);
    case Op::index: return c.index(indices[0]);
    case Op::cast: return c.cast(args[0], e->dtype);
    case Op::round_to: return c.round_to(args[0], e->format, e->bits != 0);
    case Op::bitcast: return c.bitcast(args[0], e->dtype);
    case Op::where: return c.where(args[0], args[1], args[2]);
    default: return is_unary(e->op) ? c.unary(e->op, args[0]) : c.binary(e->op, args[0], args[1]);
    }
  }

  MapIndex map_index_;
  std::unordered_map<Expr, Expr> nodes_;
  std::unordered_map<const SymNode*, SymInt> indices_;
};

/// The map of an index that replaces `leaves` and renews indirect values.
Rebuilder::MapIndex replacing(std::unordered_map<const SymNode*, SymInt> leaves) {
  return [map = std::move(leaves)](SymInt e, Rebuilder& rebuilder) mutable {
    for_each_indirect(e, [&](const SymNode& n) {
      if (map.contains(&n)) return;
      SymInt renewed = rebuilder.renew(n, [&](SymInt extent) { return replace(extent, map); });
      map.emplace(&n, renewed);
    });
    return map.empty() ? e : replace(e, map);
  };
}

/// A comparison of two index values that the extents decide.
Expr decide(Expr e, const Extents& extents) {
  if (!is_comparison(e->op) || e->args[0]->dtype != DType::i64) return e;
  auto symbolic = [](Expr x) -> std::optional<SymInt> {
    if (x->op == Op::index) return x->indices[0];
    if (x->op == Op::constant) return SymInt(x->as_int());
    return std::nullopt;
  };
  auto a = symbolic(e->args[0]), b = symbolic(e->args[1]);
  if (!a || !b) return e;
  Context& c = *e->context;
  bool lt = provably_less(*a, *b, extents), gt = provably_less(*b, *a, extents);
  bool le = lt || provably_nonnegative(*b - *a, extents), ge = gt || provably_nonnegative(*a - *b, extents);
  auto decided = [&](bool yes, bool no) { return yes ? c.boolean(true) : no ? c.boolean(false) : e; };
  switch (e->op) {
  case Op::less: return decided(lt, ge);
  case Op::less_equal: return decided(le, gt);
  case Op::greater: return decided(gt, le);
  case Op::greater_equal: return decided(ge, lt);
  case Op::equal: return decided(le && ge, lt || gt);
  default: return decided(lt || gt, le && ge);
  }
}

} // namespace

void visit(std::span<const Expr> es, const std::function<void(Expr)>& fn) {
  for (Expr e : ordered(es)) fn(e);
}

void visit(Expr e, const std::function<void(Expr)>& fn) { visit(std::span(&e, 1), fn); }

Expr rewrite(Expr e, const std::function<Expr(Expr)>& fn) { return Rebuilder(replacing({})).run(e, fn); }

Expr substitute(Expr e, const Substitution& s) {
  std::unordered_map<const SymNode*, SymInt> leaves;
  Context& c = *e->context;
  for (size_t k = 0; k < s.vars.size(); ++k) leaves.emplace(c.var(static_cast<int>(k)).node(), s.vars[k]);
  for (size_t k = 0; k < s.rvars.size(); ++k) leaves.emplace(c.rvar(static_cast<int>(k)).node(), s.rvars[k]);
  return Rebuilder(replacing(std::move(leaves))).run(e);
}

Expr simplify(Expr e, const Extents& extents) {
  auto map_index = [&](SymInt index, Rebuilder& rebuilder) {
    return simplify_index(index, extents, [&](const SymNode& n) {
      return rebuilder.renew(n, [&](SymInt extent) { return simplify(extent, extents); });
    });
  };
  return Rebuilder(map_index).run(e, [&](Expr n) { return decide(n, extents); });
}

Expr mask_loads(Expr e, Expr mask) {
  return rewrite(e, [&](Expr n) {
    if (n->op != Op::load) return n;
    Expr both = n->mask() ? n->context->binary(Op::logical_and, n->mask(), mask) : mask;
    return n->context->load(n->buffer, n->dtype, n->indices, both);
  });
}

ExprCounts count(std::span<const Expr> es) {
  ExprCounts counts;
  for (Expr e : ordered(es)) {
    if (e->op == Op::load) {
      ++counts.loads;
    } else if (e->op > Op::local) {
      ++counts.ops;
      counts.expensive += is_expensive(e->op);
    }
  }
  return counts;
}

} // namespace tbx::ir
