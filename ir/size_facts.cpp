#include "ir/size_facts.h"

#include "ir/symint_impl.h"

namespace tbx::ir {
namespace {

/// A symbol of a sum that can be written by the rest: it stands there alone, once, with factor 1 or -1. The
/// youngest one, so that what the model named first stays.
const SymNode* solvable(const symint::Sum& sum) {
  const SymNode* best = nullptr;
  for (auto [coefficient, term] : sum.terms) {
    if (term->kind != SymKind::symbol || (coefficient != 1 && coefficient != -1)) continue;
    bool elsewhere = false;
    for (auto [k, other] : sum.terms) elsewhere |= other != term && depends_on(SymInt(other), term);
    if (!elsewhere && (!best || term->number > best->number)) best = term;
  }
  return best;
}

} // namespace

void SizeFacts::add(SymInt value, bool equal) {
  value = in_terms(value);
  if (value.is_constant()) return;
  const SymNode& n = *value.node();
  if (!equal) {
    // A minimum is as large as wanted when both parts are; which part of a maximum is, nobody knows.
    if (n.kind == SymKind::min)
      for (SymInt part : n.args) add(part, false);
    else
      add_nonnegative(value);
    return;
  }
  if (n.kind == SymKind::max) {
    // |a - b| is written max(a - b, b - a).
    if (provably_equal(n.args[0], SymInt(0) - n.args[1])) return add_equal(n.args[0]);
    for (SymInt part : n.args) add(SymInt(0) - part, false);
    return;
  }
  if (n.kind != SymKind::min) add_equal(value);
}

void SizeFacts::add_equal(SymInt value) {
  const symint::Sum sum = symint::sum_of(value);
  const SymNode* symbol = solvable(sum);
  if (!symbol) {
    add_nonnegative(value);
    add_nonnegative(SymInt(0) - value);
    return;
  }
  const SymInt rest = sum.coefficient_of(symbol) == 1 ? SymInt(symbol) - value : SymInt(symbol) + value;
  const std::unordered_map<const SymNode*, SymInt> step{{symbol, rest}};
  for (auto& [known, as] : equals_) as = replace(as, step);
  for (SymInt& e : nonnegative_) e = replace(e, step);
  equals_[symbol] = rest;
  // The range of the symbol is now one of the rest.
  add_nonnegative(rest - SymInt(symbol->lo));
}

void SizeFacts::add_nonnegative(SymInt value) {
  if (!provably_nonnegative(value)) nonnegative_.push_back(value);
}

} // namespace tbx::ir
