// Splits loops whose addresses begin anew every so many steps, as those of Tile do: two loops without a
// remainder.
#include <set>

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
std::optional<int64_t> period_of(const KernelProgram& kernel, SymInt variable) {
  std::set<int64_t> periods;
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts)
      for_each_index(s, [&](SymInt index) {
        visit(index, [&](const SymNode& n) {
          if (n.kind == SymKind::mod && n.args[0] == variable && n.args[1].is_constant())
            periods.insert(n.args[1].constant());
        });
      });
  return periods.size() == 1 ? std::optional(*periods.begin()) : std::nullopt;
}

} // namespace

void split_loops(KernelProgram& kernel) {
  Context& c = *kernel.context;
  for (size_t k = 0; k < kernel.outer.size() && kernel.outer.size() < kMaxLoops; ++k) {
    const auto period = period_of(kernel, c.var(static_cast<int>(k)));
    if (!period || *period < 2 || !provably_divisible(kernel.outer[k], *period)) continue;
    if (k + 1 == kernel.outer.size() && *period < Target::kShortRow) continue;
    Substitution s;
    for (size_t v = 0; v < kernel.outer.size(); ++v) {
      const SymInt after = c.var(static_cast<int>(v + (v > k ? 1 : 0)));
      s.vars.push_back(v == k ? after * SymInt(*period) + c.var(static_cast<int>(k + 1)) : after);
    }
    kernel.outer[k] = floordiv(kernel.outer[k], *period);
    kernel.outer.insert(kernel.outer.begin() + static_cast<std::ptrdiff_t>(k) + 1, SymInt(*period));
    for (Phase& phase : kernel.phases)
      for (Stmt& st : phase.stmts) {
        const Extents extents = kernel.extents(phase);
        st.value = simplify(substitute(st.value, s), extents);
        if (st.mask) st.mask = simplify(substitute(st.mask, s), extents);
        st.address = simplify(substitute(st.address, s), extents);
      }
  }
}

} // namespace tbx::fusion
