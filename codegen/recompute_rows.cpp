#include "codegen/recompute_rows.h"

#include <unordered_map>

namespace tbx::codegen {

using ir::Access;
using ir::Expr;
using ir::Op;
using ir::Phase;
using ir::Stmt;
using ir::StmtKind;

namespace {

constexpr int kMostOperations = 12, kMostExpensive = 1;

/// Calls f(load, phase) for every load of the kernel, with `plain` false inside of addresses.
template <class F> void visit_loads(const ir::KernelProgram& kernel, F&& f) {
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts) {
      auto visit = [&](const std::vector<Expr>& values, bool plain) {
        ir::visit(values, [&](Expr e) {
          if (e->op == Op::load) f(e, phase, plain);
        });
      };
      visit(ir::operands_of(s), true);
      visit(ir::address_values_of(s), false);
    }
}

class Recomputer {
public:
  explicit Recomputer(const ir::KernelProgram& kernel) : kernel_(kernel) {}

  std::optional<ir::KernelProgram> run() {
    for (size_t p = 0; p < kernel_.phases.size(); ++p) {
      std::vector<Stmt> kept;
      for (Stmt s : kernel_.phases[p].stmts) {
        s.value = rewritten(s.value);
        if (s.mask) s.mask = rewritten(s.mask);
        if (is_cheap_row(s, p))
          values_[s.buffer] = s.value;
        else
          kept.push_back(s);
      }
      kernel_.phases[p].stmts = std::move(kept);
    }
    if (values_.empty()) return std::nullopt;
    std::erase_if(kernel_.phases, [](const Phase& phase) { return phase.stmts.empty(); });
    return std::move(kernel_);
  }

private:
  Expr rewritten(Expr e) const {
    if (values_.empty()) return e;
    return ir::rewrite(e, [&](Expr x) {
      auto it = x->op == Op::load ? values_.find(x->buffer) : values_.end();
      return it == values_.end() ? x : it->second;
    });
  }

  bool is_cheap_row(const Stmt& store, size_t p) const {
    if (store.kind != StmtKind::store || store.mode != ir::StoreMode::set || store.mask) return false;
    const ir::KernelBuffer& b = kernel_.buffers[store.buffer];
    // Another type would round what is stored.
    if (b.access != Access::row_local || b.may_alias || b.dtype != store.value->dtype) return false;
    const ir::ExprCounts counts = ir::count({&store.value, 1});
    bool good = counts.ops <= kMostOperations && counts.expensive <= kMostExpensive;
    ir::visit(store.value, [&](Expr e) {
      good &= e->op != Op::local && e->op != Op::random;
      if (e->op != Op::load) return;
      // An operand that the result replaces may be gone by then.
      const ir::KernelBuffer& operand = kernel_.buffers[e->buffer];
      good &= operand.access == Access::read && !operand.may_alias;
    });
    for (size_t q = 0; q < kernel_.phases.size(); ++q)
      for (const Stmt& s : kernel_.phases[q].stmts)
        if (s.buffer == store.buffer)
          good &= q == p && s.address == store.address && s.kind == StmtKind::store;
    visit_loads(kernel_, [&](Expr e, const Phase& phase, bool plain) {
      if (e->buffer == store.buffer)
        good &=
            plain && !e->mask() && e->indices[0] == store.address && phase.inner == kernel_.phases[p].inner;
    });
    return good;
  }

  ir::KernelProgram kernel_;
  std::unordered_map<int, Expr> values_; ///< by buffer
};

} // namespace

std::optional<ir::KernelProgram> recompute_rows(const ir::KernelProgram& kernel) {
  return Recomputer(kernel).run();
}

} // namespace tbx::codegen
