// Splits loops whose addresses begin anew every so many steps, as those of Tile and those of rows of a
// reshaped image do: two loops without a remainder.
#include <algorithm>
#include <functional>
#include <optional>

#include "base/target.h"
#include "fusion/build_kernel.h"

namespace tbx::fusion {

using namespace ir;

namespace {

/// More loops than these cost more than the remainders.
constexpr size_t kMaxLoops = 8;

/// Calls `fn` on every index of a statement's addresses and values.
template <class F> void for_each_index(const Stmt& s, F&& fn) {
  fn(s.address);
  auto of_value = [&](Expr n) {
    if (n->op == Op::load || n->op == Op::index)
      for (SymInt i : n->indices) fn(i);
  };
  visit(s.value, of_value);
  if (s.mask) visit(s.mask, of_value);
}

/// The divisor of all remainders of `variable`; nullopt: none, or several.
std::optional<SymInt> period_of(const KernelProgram& kernel, SymInt variable) {
  SymInts periods;
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts)
      for_each_index(s, [&](SymInt index) {
        visit(index, [&](const SymNode& n) {
          if (n.kind == SymKind::mod && n.args[0] == variable &&
              std::ranges::find(periods, n.args[1]) == periods.end())
            periods.push_back(n.args[1]);
        });
      });
  return periods.size() == 1 ? std::optional(periods[0]) : std::nullopt;
}

bool is_short(SymInt extent) { return size_hint(extent) < Target::kShortRow; }

/// Loop `k` of `extents` as two, of which the inner one has `period` steps.
void split(SymInts& extents, size_t k, SymInt period) {
  extents[k] = floordiv(extents[k], period);
  extents.insert(extents.begin() + static_cast<std::ptrdiff_t>(k) + 1, period);
}

/// The variables of `loops` loops where loop `k` becomes two.
SymInts variables_of_split(size_t loops, size_t k, SymInt period,
                           const std::function<SymInt(int)>& variable) {
  SymInts of_old;
  for (size_t v = 0; v < loops; ++v) {
    const SymInt after = variable(static_cast<int>(v + (v > k ? 1 : 0)));
    of_old.push_back(v == k ? after * period + variable(static_cast<int>(k + 1)) : after);
  }
  return of_old;
}

void substitute_in(const KernelProgram& kernel, Phase& phase, const Substitution& s) {
  const Extents extents = kernel.extents(phase);
  for (Stmt& st : phase.stmts) {
    st.value = simplify(substitute(st.value, s), extents);
    if (st.mask) st.mask = simplify(substitute(st.mask, s), extents);
    st.address = simplify(substitute(st.address, s), extents);
  }
}

void split_outer(KernelProgram& kernel) {
  Context& c = *kernel.context;
  for (size_t k = 0; k < kernel.outer.size() && kernel.outer.size() < kMaxLoops; ++k) {
    const auto period = period_of(kernel, c.var(static_cast<int>(k)));
    if (!period || period->is(1) || !provably_divisible(kernel.outer[k], *period)) continue;
    if (k + 1 == kernel.outer.size() && is_short(*period)) continue;
    const Substitution s{variables_of_split(kernel.outer.size(), k, *period, [&](int v) { return c.var(v); }),
                         {}};
    split(kernel.outer, k, *period);
    for (Phase& phase : kernel.phases) substitute_in(kernel, phase, s);
  }
}

/// How closely the accesses to memory follow each other along `variable`.
double nearness(const KernelProgram& kernel, SymInt variable) {
  double votes = 0;
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts)
      visit_accesses(s, [&](int, SymInt address) {
        auto affine = affine_in(address, variable.node());
        if (affine && !affine->coefficient.is(0))
          votes += 1.0 / static_cast<double>(std::max<int64_t>(1, size_hint(affine->coefficient)));
      });
  return votes;
}

/// Sums come out the same in any order but for roundings; positions and running sums do not.
bool has_order(const Phase& phase) {
  return std::ranges::any_of(phase.stmts, [](const Stmt& s) {
    return s.kind == StmtKind::scan || (s.kind == StmtKind::reduce && s.reduce >= ReduceOp::argmax);
  });
}

/// The loops that all phases with inner loops share: rows whose dimensions were joined in another order than
/// memory has them.
void split_inner(KernelProgram& kernel) {
  Context& c = *kernel.context;
  SymInts inner;
  for (const Phase& phase : kernel.phases) {
    if (phase.inner.empty()) continue;
    if ((!inner.empty() && inner != phase.inner) || has_order(phase)) return;
    inner = phase.inner;
  }
  auto variable = [&](int v) { return c.rvar(v); };
  for (size_t k = 0; k < inner.size() && inner.size() < kMaxLoops; ++k) {
    const auto period = period_of(kernel, c.rvar(static_cast<int>(k)));
    if (!period || period->is(1) || !provably_divisible(inner[k], *period)) continue;
    Substitution s{{}, variables_of_split(inner.size(), k, *period, variable)};
    split(inner, k, *period);
    auto rewrite = [&] {
      for (Phase& phase : kernel.phases) {
        if (!phase.inner.empty()) phase.inner = inner;
        substitute_in(kernel, phase, s);
      }
    };
    rewrite();
    if (nearness(kernel, variable(static_cast<int>(k))) <=
        nearness(kernel, variable(static_cast<int>(k) + 1)))
      continue;
    s.rvars.clear();
    for (size_t v = 0; v < inner.size(); ++v)
      s.rvars.push_back(variable(static_cast<int>(v == k ? k + 1 : v == k + 1 ? k : v)));
    std::swap(inner[k], inner[k + 1]);
    rewrite();
  }
}

} // namespace

void split_loops(KernelProgram& kernel) {
  split_outer(kernel);
  split_inner(kernel);
}

} // namespace tbx::fusion
