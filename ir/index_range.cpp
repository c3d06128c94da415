#include "ir/index_range.h"

#include <algorithm>
#include <set>

namespace tbx::ir {

using namespace symint;

namespace {

constexpr int kDepth = 3; ///< divisions inside each other that a proof looks through

bool share_symbol(SymInt a, SymInt b) {
  std::set<const SymNode*> of_a;
  visit(a, [&](const SymNode& n) {
    if (n.kind == SymKind::symbol) of_a.insert(&n);
  });
  bool shared = false;
  visit(b, [&](const SymNode& n) { shared |= of_a.contains(&n); });
  return shared;
}

} // namespace

bool RangeProver::nonnegative(SymInt e, const SymInts& also) {
  return attempt_or(false, [&] { return attempt(e, also, kDepth); });
}

bool RangeProver::attempt(SymInt e, const SymInts& also, int depth) {
  if (prover_.nonnegative(e)) return true;
  if (e.is_constant()) return false;
  auto follows = [&](SymInt rest) {
    return std::ranges::any_of(
        facts_, [&](SymInt fact) { return share_symbol(rest, fact) && prover_.at_least(rest, fact); });
  };
  if (follows(e)) return true;
  for (SymInt fact : also)
    if (prover_.at_least(e, fact) || follows(e - fact)) return true;
  if (depth == 0) return false;
  // rest >= x//d is (rest + 1)*d > x.
  const Sum sum = sum_of(e);
  for (auto [coefficient, term] : sum.terms) {
    if (coefficient != -1 || term->kind != SymKind::floordiv) continue;
    const SymInt x = term->args[0], d = term->args[1];
    if (attempt((e + SymInt(term) + SymInt(1)) * d - SymInt(1) - x, also, depth - 1)) return true;
  }
  return false;
}

namespace {

class Extreme {
public:
  explicit Extreme(const Extents& extents) : extents_(extents) {}

  std::optional<SymInt> of(SymInt e, bool greatest) {
    if (e.is_constant() || !e.node()->varies) return e;
    SymInt result = 0;
    // Variables that stand in products with what is fixed, with all that they are multiplied by.
    std::vector<std::pair<const SymNode*, SymInt>> linear;
    const Sum sum = sum_of(e);
    result = sum.constant;
    for (auto [k, term] : sum.terms) {
      if (!term->varies) {
        result += SymInt(term) * SymInt(k);
        continue;
      }
      if (term->kind == SymKind::floordiv && (term->args[1].is_constant() || !term->args[1].node()->varies)) {
        auto x = of(term->args[0], greatest == (k > 0));
        if (!x) return std::nullopt;
        result += floordiv(*x, term->args[1]) * SymInt(k);
        continue;
      }
      const SymNode* variable = nullptr;
      SymInt factor = k;
      for (SymInt f : factors_of(term)) {
        if (!f.node()->varies) {
          factor = factor * f;
        } else if (variable || (f.node()->kind != SymKind::var && f.node()->kind != SymKind::rvar)) {
          return std::nullopt;
        } else {
          variable = f.node();
        }
      }
      auto it = std::find_if(linear.begin(), linear.end(), [&](auto& l) { return l.first == variable; });
      if (it == linear.end())
        linear.emplace_back(variable, factor);
      else
        it->second += factor;
    }
    for (auto& [variable, factor] : linear) {
      if (!used_.insert(variable).second) return std::nullopt;
      const SymInts& sizes = variable->kind == SymKind::var ? extents_.vars : extents_.rvars;
      if (static_cast<size_t>(variable->number) >= sizes.size()) return std::nullopt;
      const SymInt last = sizes[variable->number] - SymInt(1);
      if (has_loop_variable(last) || has_indirect(last)) return std::nullopt;
      // The nest is not empty: last >= 0.
      const SymInt far = factor * last;
      const bool up = provably_nonnegative(factor), down = provably_nonnegative(SymInt(0) - factor);
      if (up || down)
        result += up == greatest ? far : SymInt(0);
      else
        result += greatest ? max(far, 0) : min(far, 0);
    }
    return result;
  }

private:
  const Extents& extents_;
  std::set<const SymNode*> used_; ///< each may move one part only
};

} // namespace

std::optional<SymInt> extreme(SymInt e, const Extents& extents, bool greatest) {
  if (has_indirect(e)) return std::nullopt;
  return attempt_or(std::optional<SymInt>(), [&] { return Extreme(extents).of(e, greatest); });
}

} // namespace tbx::ir
