// Walks over SymInt expressions: substitution, replacement, affine form, evaluation, printing.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "ir/context_impl.h"
#include "ir/symint.h"

namespace tbx::ir {
namespace {

/// Rebuilds an expression bottom-up with `leaf` deciding about symbols, variables and indirect values.
class Rebuilder {
 public:
  explicit Rebuilder(std::function<std::optional<SymInt>(const SymNode&)> replace_node)
      : replace_node_(std::move(replace_node)) {}

  SymInt of(SymInt e) {
    if (e.is_constant()) return e;
    if (auto it = memo_.find(e.node()); it != memo_.end()) return it->second;
    SymInt r = compute(*e.node());
    memo_[e.node()] = r;
    return r;
  }

 private:
  SymInt compute(const SymNode& n) {
    if (auto r = replace_node_(n)) return *r;
    switch (n.kind) {
      case SymKind::symbol:
      case SymKind::var:
      case SymKind::rvar: return SymInt(&n);
      case SymKind::indirect: {
        SymInt extent = of(n.args[0]);
        return extent == n.args[0] ? SymInt(&n) : n.context->indirect(n.value, extent, false);
      }
      case SymKind::add: {
        bool same = true;
        std::vector<SymInt> terms;
        for (auto [coefficient, term] : n.terms) {
          terms.push_back(of(SymInt(term)));
          same &= terms.back() == SymInt(term);
        }
        if (same) return SymInt(&n);
        SymInt r = n.constant;
        for (size_t i = 0; i < terms.size(); ++i) r = r + SymInt(n.terms[i].first) * terms[i];
        return r;
      }
      case SymKind::mul: {
        SymInt r = 1;
        bool same = true;
        for (SymInt f : n.args) {
          SymInt g = of(f);
          same &= g == f;
          r = r * g;
        }
        return same ? SymInt(&n) : r;
      }
      default: {
        SymInt a = of(n.args[0]), b = of(n.args[1]);
        if (a == n.args[0] && b == n.args[1]) return SymInt(&n);
        switch (n.kind) {
          case SymKind::floordiv: return floordiv(a, b);
          case SymKind::mod: return mod(a, b);
          case SymKind::min: return min(a, b);
          default: return max(a, b);
        }
      }
    }
  }

  std::function<std::optional<SymInt>(const SymNode&)> replace_node_;
  std::unordered_map<const SymNode*, SymInt> memo_;
};

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

}  // namespace

SymInt substitute(SymInt e, const Substitution& s) {
  if (e.is_constant()) return e;
  return Rebuilder([&](const SymNode& n) -> std::optional<SymInt> {
           if (n.kind == SymKind::var && n.number < static_cast<int>(s.vars.size())) return s.vars[n.number];
           if (n.kind == SymKind::rvar && n.number < static_cast<int>(s.rvars.size())) return s.rvars[n.number];
           if (n.kind == SymKind::indirect) {
             Expr value = substitute(n.value, s);
             SymInt extent = substitute(n.args[0], s);
             if (value == n.value && extent == n.args[0]) return SymInt(&n);
             return n.context->indirect(value, extent, false);
           }
           return std::nullopt;
         })
      .of(e);
}

SymInt replace(SymInt e, const std::unordered_map<const SymNode*, SymInt>& map) {
  return Rebuilder([&](const SymNode& n) -> std::optional<SymInt> {
           auto it = map.find(&n);
           return it == map.end() ? std::nullopt : std::optional(it->second);
         })
      .of(e);
}

void visit(SymInt e, const std::function<void(const SymNode&)>& fn) {
  std::unordered_set<const SymNode*> seen;
  std::function<void(SymInt)> walk = [&](SymInt x) {
    if (x.is_constant() || !seen.insert(x.node()).second) return;
    const SymNode& n = *x.node();
    for (auto& [coefficient, term] : n.terms) walk(SymInt(term));
    for (SymInt a : n.args) walk(a);
    if (n.kind == SymKind::indirect)
      visit(n.value, [&](Expr v) {
        for (SymInt i : v->indices) walk(i);
      });
    fn(n);
  };
  walk(e);
}

bool depends_on(SymInt e, const SymNode* v) {
  if (e.is_constant()) return false;
  bool found = false;
  visit(e, [&](const SymNode& n) { found |= &n == v; });
  return found;
}

static bool any_node(SymInt e, bool (*test)(const SymNode&)) {
  if (e.is_constant()) return false;
  bool found = false;
  visit(e, [&](const SymNode& n) { found |= test(n); });
  return found;
}

bool has_indirect(SymInt e) {
  return any_node(e, [](const SymNode& n) { return n.kind == SymKind::indirect; });
}
bool has_loop_variable(SymInt e) {
  return any_node(e, [](const SymNode& n) { return n.kind == SymKind::var || n.kind == SymKind::rvar; });
}
bool has_unbacked(SymInt e) {
  return any_node(e, [](const SymNode& n) { return n.kind == SymKind::symbol && n.unbacked; });
}

std::optional<Affine> affine_in(SymInt e, const SymNode* v) {
  if (!depends_on(e, v)) return Affine{0, e};
  const SymNode& n = *e.node();
  if (&n == v) return Affine{1, 0};
  if (n.kind == SymKind::add) {
    Affine sum{0, n.constant};
    for (auto [coefficient, term] : n.terms) {
      auto part = affine_in(SymInt(term), v);
      if (!part) return std::nullopt;
      sum.coefficient += SymInt(coefficient) * part->coefficient;
      sum.rest += SymInt(coefficient) * part->rest;
    }
    return sum;
  }
  if (n.kind == SymKind::mul) {
    SymInt others = 1;
    std::optional<Affine> inner;
    for (SymInt f : n.args) {
      if (!depends_on(f, v)) {
        others = others * f;
      } else {
        if (inner) return std::nullopt;
        inner = affine_in(f, v);
        if (!inner) return std::nullopt;
      }
    }
    if (has_loop_variable(others)) return std::nullopt;
    return Affine{inner->coefficient * others, inner->rest * others};
  }
  return std::nullopt;
}

std::optional<int64_t> evaluate(SymInt e, std::span<const int64_t> symbols, std::span<const int64_t> vars,
                                std::span<const int64_t> rvars, const std::function<int64_t(const SymNode&)>& indirect) {
  if (e.is_constant()) return e.constant();
  const SymNode& n = *e.node();
  auto at = [](std::span<const int64_t> values, int k) -> std::optional<int64_t> {
    if (k >= static_cast<int>(values.size())) return std::nullopt;
    return values[k];
  };
  auto sub = [&](SymInt x) { return evaluate(x, symbols, vars, rvars, indirect); };
  switch (n.kind) {
    case SymKind::symbol: return at(symbols, n.number);
    case SymKind::var: return at(vars, n.number);
    case SymKind::rvar: return at(rvars, n.number);
    case SymKind::indirect: return indirect ? std::optional(indirect(n)) : std::nullopt;
    case SymKind::add: {
      int64_t r = n.constant;
      for (auto [coefficient, term] : n.terms) {
        auto t = sub(SymInt(term));
        int64_t p;
        if (!t || __builtin_mul_overflow(coefficient, *t, &p) || __builtin_add_overflow(r, p, &r)) return std::nullopt;
      }
      return r;
    }
    case SymKind::mul: {
      int64_t r = 1;
      for (SymInt f : n.args) {
        auto t = sub(f);
        if (!t || __builtin_mul_overflow(r, *t, &r)) return std::nullopt;
      }
      return r;
    }
    default: {
      auto a = sub(n.args[0]), b = sub(n.args[1]);
      if (!a || !b) return std::nullopt;
      switch (n.kind) {
        case SymKind::min: return std::min(*a, *b);
        case SymKind::max: return std::max(*a, *b);
        case SymKind::floordiv: return *b <= 0 ? std::nullopt : std::optional(floor_div(*a, *b));
        default: return *b <= 0 ? std::nullopt : std::optional(*a - floor_div(*a, *b) * *b);
      }
    }
  }
}

std::string index_to_string(SymInt e, const std::function<std::string(const SymNode&)>& indirect) {
  auto text = [&](SymInt x) { return index_to_string(x, indirect); };
  if (e.is_constant()) return fmt::format("{}", e.constant());
  const SymNode& n = *e.node();
  auto wrapped = [&](SymInt x) {
    std::string s = text(x);
    bool plain = x.is_constant() ? x.constant() >= 0 : x.node()->kind != SymKind::add;
    return plain ? s : "(" + s + ")";
  };
  switch (n.kind) {
    case SymKind::symbol: return n.name;
    case SymKind::var: return fmt::format("i{}", n.number);
    case SymKind::rvar: return fmt::format("r{}", n.number);
    case SymKind::indirect: return indirect(n);
    case SymKind::add: {
      std::string s;
      for (auto [coefficient, term] : n.terms) {
        int64_t c = coefficient;
        if (!s.empty()) {
          s += c < 0 ? " - " : " + ";
          c = c < 0 ? -c : c;
        }
        if (c == -1) {
          s += "-";
        } else if (c != 1) {
          s += fmt::format("{}*", c);
        }
        s += text(SymInt(term));
      }
      if (n.constant > 0) s += fmt::format(" + {}", n.constant);
      if (n.constant < 0) s += fmt::format(" - {}", -n.constant);
      return s;
    }
    case SymKind::mul: {
      std::string s;
      for (SymInt f : n.args) s += (s.empty() ? "" : "*") + wrapped(f);
      return s;
    }
    case SymKind::floordiv: return fmt::format("{}//{}", wrapped(n.args[0]), wrapped(n.args[1]));
    case SymKind::mod: return fmt::format("{}%{}", wrapped(n.args[0]), wrapped(n.args[1]));
    case SymKind::min: return fmt::format("min({}, {})", text(n.args[0]), text(n.args[1]));
    case SymKind::max: return fmt::format("max({}, {})", text(n.args[0]), text(n.args[1]));
  }
  return "?";
}

std::string to_string(SymInt e) {
  return index_to_string(
      e, [](const SymNode& n) { return fmt::format("[{} < {}]", to_string(n.value), to_string(n.args[0])); });
}

std::string to_string(std::span<const SymInt> xs) {
  std::string s = "[";
  for (size_t i = 0; i < xs.size(); ++i) s += (i ? ", " : "") + to_string(xs[i]);
  return s + "]";
}

int64_t size_hint(SymInt e, int64_t assume) {
  if (e.is_constant()) return e.constant();
  std::vector<int64_t> values;
  for (const SymNode* s : e.node()->context->symbols()) values.push_back(std::clamp(assume, s->lo, s->hi));
  return evaluate(e, values).value_or(assume);
}

}  // namespace tbx::ir
