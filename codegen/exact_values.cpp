#include "codegen/exact_values.h"

#include <vector>

namespace tbx::codegen {

using ir::Expr;
using ir::Op;
using ir::Stmt;
using ir::StmtKind;

namespace {

/// A small change of an operand may change the result much.
bool is_step(Expr e) {
  if (e->num_args == 0 || !is_float(e->args[0]->dtype)) return false;
  switch (e->op) {
  case Op::ceil:
  case Op::floor:
  case Op::round_even:
  case Op::trunc:
  case Op::sign:
  case Op::fmod:
  case Op::floor_mod:
  case Op::equal:
  case Op::not_equal:
  case Op::less:
  case Op::less_equal:
  case Op::greater:
  case Op::greater_equal:
  case Op::bitcast: return true;
  case Op::cast: return !is_float(e->dtype);
  case Op::round_to: return e->format != DType::f16 && e->format != DType::bf16;
  default: return false;
  }
}

/// Few bits: the neighbour of a stored value is far away.
bool is_coarse(DType t) { return is_float(t) && size_of(t) == 1; }

class Marker {
public:
  explicit Marker(const ir::KernelProgram& kernel) : kernel_(kernel) {
    for (const ir::Phase& phase : kernel.phases)
      for (const Stmt& s : phase.stmts) {
        ir::visit(ir::values_of(s), [&](Expr e) {
          if (is_step(e))
            for (int i = 0; i < e->num_args; ++i) mark(e->args[i]);
        });
        const bool positions = s.kind == StmtKind::reduce && s.reduce > ir::ReduceOp::all;
        if (positions || (s.buffer >= 0 && is_coarse(kernel.buffers[s.buffer].dtype))) mark(s.value);
      }
  }
  std::unordered_set<Expr> exact;

private:
  void mark(Expr root) {
    if (exact.contains(root)) return;
    std::vector<Expr> results;
    ir::visit(root, [&](Expr e) {
      if (!exact.insert(e).second) return;
      if (e->op == Op::accumulator || e->op == Op::local || e->op == Op::load) results.push_back(e);
    });
    for (Expr e : results) mark_source(e);
  }

  /// What the kernel itself computes of the operand.
  void mark_source(Expr e) {
    for (const ir::Phase& phase : kernel_.phases)
      for (const Stmt& s : phase.stmts)
        if ((e->op == Op::accumulator && s.kind == StmtKind::reduce && s.number == e->number) ||
            (e->op == Op::local && s.kind == StmtKind::let && s.number == e->number) ||
            (e->op == Op::load && s.buffer == e->buffer))
          mark(s.value);
  }

  const ir::KernelProgram& kernel_;
};

} // namespace

std::unordered_set<Expr> exact_values(const ir::KernelProgram& kernel) { return Marker(kernel).exact; }

} // namespace tbx::codegen
