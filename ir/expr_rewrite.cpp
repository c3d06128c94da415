// Walks over Expr DAGs: each visits every node once, without native recursion along operand chains.
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "ir/context_impl.h"
#include "ir/expr.h"

namespace tbx::ir {
namespace {

/// Direct operands in the widest sense: arguments and the values inside indirect indices.
template <class F>
void for_each_operand(Expr e, F&& fn) {
  for (int i = 0; i < e->num_args; ++i) fn(e->args[i]);
  for (SymInt index : e->indices) {
    if (index.is_constant()) continue;
    // visit() of a SymInt walks into the indices of indirect values; their expressions are what is wanted here.
    std::unordered_set<const SymNode*> seen;
    std::vector<const SymNode*> stack{index.node()};
    while (!stack.empty()) {
      const SymNode* n = stack.back();
      stack.pop_back();
      if (!seen.insert(n).second) continue;
      if (n->kind == SymKind::indirect) fn(n->value);
      for (auto& [coefficient, term] : n->terms) stack.push_back(term);
      for (SymInt a : n->args)
        if (!a.is_constant()) stack.push_back(a.node());
    }
  }
}

/// Operands first. Explicit stack: chains may be tens of thousands long.
void post_order(std::span<const Expr> roots, std::unordered_set<Expr>& seen, std::vector<Expr>& order) {
  std::vector<std::pair<Expr, bool>> stack;
  for (size_t r = roots.size(); r-- > 0;)
    if (roots[r]) stack.emplace_back(roots[r], false);
  while (!stack.empty()) {
    auto [e, done] = stack.back();
    stack.pop_back();
    if (done) {
      order.push_back(e);
      continue;
    }
    if (!seen.insert(e).second) continue;
    stack.emplace_back(e, true);
    std::vector<Expr> operands;
    for_each_operand(e, [&](Expr o) { operands.push_back(o); });
    for (size_t i = operands.size(); i-- > 0;)
      if (!seen.contains(operands[i])) stack.emplace_back(operands[i], false);
  }
}

std::vector<Expr> ordered(std::span<const Expr> roots) {
  std::unordered_set<Expr> seen;
  std::vector<Expr> order;
  post_order(roots, seen, order);
  return order;
}

using Memo = std::unordered_map<Expr, Expr>;

/// Rebuilds indices whose indirect values changed, then maps them.
SymInt rebuild_index(SymInt e, const Memo& memo) {
  if (e.is_constant()) return e;
  std::unordered_map<const SymNode*, SymInt> changed;
  std::unordered_set<const SymNode*> seen;
  std::vector<const SymNode*> stack{e.node()};
  while (!stack.empty()) {
    const SymNode* n = stack.back();
    stack.pop_back();
    if (!seen.insert(n).second) continue;
    if (n->kind == SymKind::indirect) {
      Expr value = memo.at(n->value);
      if (value != n->value) changed[n] = n->context->indirect(value, n->args[0], false);
    }
    for (auto& [coefficient, term] : n->terms) stack.push_back(term);
    for (SymInt a : n->args)
      if (!a.is_constant()) stack.push_back(a.node());
  }
  return changed.empty() ? e : replace(e, changed);
}

/// The node with new operands and indices, through the constructors (so it folds again).
Expr rebuild(Expr e, const Memo& memo, const std::function<SymInt(SymInt)>& map_index) {
  Context& c = *e->context;
  bool same = true;
  Expr args[3] = {nullptr, nullptr, nullptr};
  for (int i = 0; i < e->num_args; ++i) {
    args[i] = memo.at(e->args[i]);
    same &= args[i] == e->args[i];
  }
  SymInts indices;
  for (SymInt index : e->indices) {
    SymInt renewed = map_index ? map_index(index) : rebuild_index(index, memo);
    same &= renewed == index;
    indices.push_back(renewed);
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

}  // namespace

void visit(std::span<const Expr> es, const std::function<void(Expr)>& fn) {
  for (Expr e : ordered(es)) fn(e);
}

void visit(Expr e, const std::function<void(Expr)>& fn) { visit(std::span(&e, 1), fn); }

Expr rewrite(Expr e, const std::function<Expr(Expr)>& fn) {
  Memo memo;
  for (Expr n : ordered(std::span(&e, 1))) memo[n] = fn(rebuild(n, memo, {}));
  return memo.at(e);
}

Expr substitute(Expr e, const Substitution& s) {
  Memo memo;
  // Indirect values are rewritten by the SymInt side, which calls back here per value.
  auto map_index = [&](SymInt i) { return substitute(i, s); };
  for (Expr n : ordered(std::span(&e, 1))) memo[n] = rebuild(n, memo, map_index);
  return memo.at(e);
}

Expr simplify(Expr e, const Extents& extents) {
  Memo memo;
  auto map_index = [&](SymInt i) { return simplify(i, extents); };
  for (Expr n : ordered(std::span(&e, 1))) {
    Expr r = rebuild(n, memo, map_index);
    // Comparisons of index values that the extents decide.
    if (is_comparison(r->op) && r->args[0]->dtype == DType::i64) {
      auto symbolic = [](Expr x) -> std::optional<SymInt> {
        if (x->op == Op::index) return x->indices[0];
        if (x->op == Op::constant) return SymInt(x->as_int());
        return std::nullopt;
      };
      auto a = symbolic(r->args[0]), b = symbolic(r->args[1]);
      if (a && b) {
        Context& c = *r->context;
        bool lt = provably_less(*a, *b, extents), gt = provably_less(*b, *a, extents);
        bool le = lt || provably_nonnegative(*b - *a, extents), ge = gt || provably_nonnegative(*a - *b, extents);
        switch (r->op) {
          case Op::less: r = lt ? c.boolean(true) : ge ? c.boolean(false) : r; break;
          case Op::less_equal: r = le ? c.boolean(true) : gt ? c.boolean(false) : r; break;
          case Op::greater: r = gt ? c.boolean(true) : le ? c.boolean(false) : r; break;
          case Op::greater_equal: r = ge ? c.boolean(true) : lt ? c.boolean(false) : r; break;
          case Op::equal: r = le && ge ? c.boolean(true) : lt || gt ? c.boolean(false) : r; break;
          case Op::not_equal: r = le && ge ? c.boolean(false) : lt || gt ? c.boolean(true) : r; break;
          default: break;
        }
      }
    }
    memo[n] = r;
  }
  return memo.at(e);
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

}  // namespace tbx::ir
