// Questions about SymInt expressions: what they contain, their affine form, their value.
#include <algorithm>

#include "ir/seen.h"
#include "ir/symint_impl.h"

namespace tbx::ir {

void symint::for_each_indirect(SymInt e, const std::function<void(const SymNode&)>& fn) {
  if (!has_indirect(e)) return;
  Seen seen;
  std::vector<std::pair<const SymNode*, bool>> stack{{e.node(), false}};
  while (!stack.empty()) {
    auto [n, done] = stack.back();
    stack.pop_back();
    if (done) {
      fn(*n);
      continue;
    }
    if (!n->has_indirect || !seen.insert(n)) continue;
    if (n->kind == SymKind::indirect) stack.emplace_back(n, true);
    for (size_t i = n->terms.size(); i-- > 0;) stack.emplace_back(n->terms[i].second, false);
    for (size_t i = n->args.size(); i-- > 0;)
      if (!n->args[i].is_constant()) stack.emplace_back(n->args[i].node(), false);
  }
}

void visit(SymInt e, const std::function<void(const SymNode&)>& fn) {
  if (e.is_constant()) return;
  // Explicit stack: through indirect values the nesting is without bound.
  struct Item {
    const SymNode* node;
    Expr expr;
    bool done;
  };
  std::vector<Item> stack{{e.node(), nullptr, false}};
  Seen seen;
  while (!stack.empty()) {
    Item item = stack.back();
    stack.pop_back();
    if (item.done) {
      fn(*item.node);
      continue;
    }
    if (!seen.insert(item.node ? static_cast<const void*>(item.node) : item.expr)) continue;
    if (item.node) stack.push_back({item.node, nullptr, true});
    size_t first = stack.size();
    auto push = [&](SymInt x) {
      if (!x.is_constant()) stack.push_back({x.node(), nullptr, false});
    };
    if (item.node) {
      for (auto [coefficient, term] : item.node->terms) stack.push_back({term, nullptr, false});
      for (SymInt a : item.node->args) push(a);
      if (item.node->value) stack.push_back({nullptr, item.node->value, false});
    } else {
      for (int k = 0; k < item.expr->num_args; ++k) stack.push_back({nullptr, item.expr->args[k], false});
      for (SymInt i : item.expr->indices) push(i);
    }
    std::reverse(stack.begin() + static_cast<std::ptrdiff_t>(first), stack.end());
  }
}

bool depends_on(SymInt e, const SymNode* v) {
  // Nodes are younger than what they are made of.
  if (e.is_constant() || e.node()->id < v->id || (v->varies && !e.node()->varies)) return false;
  bool found = false;
  visit(e, [&](const SymNode& n) { found |= &n == v; });
  return found;
}

bool has_indirect(SymInt e) { return !e.is_constant() && e.node()->has_indirect; }
bool has_loop_variable(SymInt e) { return !e.is_constant() && e.node()->varies; }
bool has_unbacked(SymInt e) {
  bool found = false;
  visit(e, [&](const SymNode& n) { found |= n.unbacked; });
  return found;
}

namespace {

class AffineFinder {
public:
  explicit AffineFinder(const SymNode* v) : v_(v) {}

  std::optional<Affine> of(SymInt e) {
    if (!depends(e)) return Affine{0, e};
    const SymNode& n = *e.node();
    if (&n == v_) return Affine{1, 0};
    if (n.kind == SymKind::add) {
      symint::Sum coefficient, rest;
      rest.constant = n.constant;
      for (auto [k, term] : n.terms) {
        auto part = of(SymInt(term));
        if (!part) return std::nullopt;
        coefficient.add(part->coefficient, k);
        rest.add(part->rest, k);
      }
      return Affine{symint::from_sum(std::move(coefficient)), symint::from_sum(std::move(rest))};
    }
    if (n.kind != SymKind::mul) return std::nullopt;
    SymInt others = 1;
    std::optional<Affine> inner;
    for (SymInt f : n.args) {
      if (!depends(f)) {
        others = others * f;
      } else if (inner || !(inner = of(f))) {
        return std::nullopt;
      }
    }
    return Affine{inner->coefficient * others, inner->rest * others};
  }

private:
  bool depends(SymInt e) {
    if (e.is_constant() || e.node()->id < v_->id || (v_->varies && !e.node()->varies)) return false;
    const SymNode& n = *e.node();
    if (&n == v_) return true;
    if (auto it = depends_.find(&n); it != depends_.end()) return it->second;
    bool found = n.value && depends_on(e, v_);
    for (auto [k, term] : n.terms) found = found || depends(SymInt(term));
    for (SymInt a : n.args) found = found || depends(a);
    return depends_[&n] = found;
  }

  const SymNode* v_;
  std::unordered_map<const SymNode*, bool> depends_;
};

class Evaluator {
public:
  using Indirect = std::function<int64_t(const SymNode&)>;
  /// `assume`: value of symbols beyond `symbols`, within their range.
  Evaluator(std::span<const int64_t> symbols, std::span<const int64_t> vars, std::span<const int64_t> rvars,
            const Indirect* indirect, std::optional<int64_t> assume)
      : symbols_(symbols), vars_(vars), rvars_(rvars), indirect_(indirect), assume_(assume) {}

  std::optional<int64_t> of(SymInt e) {
    if (e.is_constant()) return e.constant();
    const SymNode& n = *e.node();
    // Most expressions are a few nodes; the memo is for the others.
    bool memoize = ++steps_ > 64 && n.depth > 1;
    if (memoize)
      if (auto it = memo_.find(&n); it != memo_.end()) return it->second;
    auto r = compute(n);
    if (memoize) memo_.emplace(&n, r);
    return r;
  }

private:
  static std::optional<int64_t> at(std::span<const int64_t> values, int k) {
    if (static_cast<size_t>(k) >= values.size()) return std::nullopt;
    return values[k];
  }

  std::optional<int64_t> compute(const SymNode& n) {
    switch (n.kind) {
    case SymKind::symbol: {
      auto v = at(symbols_, n.number);
      return v || !assume_ ? v : std::clamp(*assume_, n.lo, n.hi);
    }
    case SymKind::var: return at(vars_, n.number);
    case SymKind::rvar: return at(rvars_, n.number);
    case SymKind::indirect: return indirect_ && *indirect_ ? std::optional((*indirect_)(n)) : std::nullopt;
    case SymKind::add: {
      int64_t r = n.constant, p;
      for (auto [coefficient, term] : n.terms) {
        auto t = of(SymInt(term));
        if (!t || __builtin_mul_overflow(coefficient, *t, &p) || __builtin_add_overflow(r, p, &r))
          return std::nullopt;
      }
      return r;
    }
    case SymKind::mul: {
      int64_t r = 1;
      for (SymInt f : n.args) {
        auto t = of(f);
        if (!t || __builtin_mul_overflow(r, *t, &r)) return std::nullopt;
      }
      return r;
    }
    default: break;
    }
    auto a = of(n.args[0]), b = of(n.args[1]);
    if (!a || !b) return std::nullopt;
    if (n.kind == SymKind::min) return std::min(*a, *b);
    if (n.kind == SymKind::max) return std::max(*a, *b);
    if (*b <= 0) return std::nullopt;
    return n.kind == SymKind::floordiv ? symint::floor_div(*a, *b) : symint::floor_mod(*a, *b);
  }

  std::span<const int64_t> symbols_, vars_, rvars_;
  const Indirect* indirect_;
  std::optional<int64_t> assume_;
  int steps_ = 0;
  std::unordered_map<const SymNode*, std::optional<int64_t>> memo_;
};

} // namespace

std::optional<Affine> affine_in(SymInt e, const SymNode* v) {
  auto affine = symint::attempt_or(std::optional<Affine>(), [&] { return AffineFinder(v).of(e); });
  if (affine && has_loop_variable(affine->coefficient)) return std::nullopt;
  return affine;
}

std::optional<int64_t> evaluate(SymInt e, std::span<const int64_t> symbols, std::span<const int64_t> vars,
                                std::span<const int64_t> rvars,
                                const std::function<int64_t(const SymNode&)>& indirect) {
  return Evaluator(symbols, vars, rvars, &indirect, {}).of(e);
}

int64_t size_hint(SymInt e, int64_t assume) {
  return Evaluator({}, {}, {}, nullptr, assume).of(e).value_or(assume);
}

} // namespace tbx::ir
