// Picks the axis that makes most strided loads contiguous.
#include "codegen/tiles.h"

#include <algorithm>

namespace tbx::codegen {

using ir::Expr;
using ir::Op;
using ir::SymInt;

static bool is_strided(SymInt address, LaneAnalysis& lanes) {
  LaneForm form = lanes.form(address);
  if (form.kind != LaneForm::affine || ir::has_indirect(address)) return false;
  // Small constant strides have whole-vector loads of their own.
  auto s = form.stride.as_constant();
  return !s || *s > 4 || *s < -1;
}

TilePlan plan_tiles(const ir::KernelProgram& kernel, LaneAnalysis& lanes, int width) {
  TilePlan best;
  if (kernel.sequential || kernel.outer.size() < 2) return best;
  std::vector<bool> written(kernel.buffers.size(), false);
  std::vector<Expr> strided;
  for (const ir::Phase& phase : kernel.phases) {
    if (!phase.inner.empty()) return best;
    for (const ir::Stmt& s : phase.stmts)
      if (s.buffer >= 0) {
        written[s.buffer] = true;
        LaneForm form = lanes.form(s.address);
        if (form.kind != LaneForm::affine || !form.stride.is(1)) return best;
      }
  }
  for (const ir::Phase& phase : kernel.phases)
    for (const ir::Stmt& s : phase.stmts)
      ir::visit(s.value, [&](Expr e) {
        if (e->op != Op::load || e->mask() || written[e->buffer] || kernel.buffers[e->buffer].may_alias)
          return;
        if (is_strided(e->indices[0], lanes) && std::find(strided.begin(), strided.end(), e) == strided.end())
          strided.push_back(e);
      });
  for (size_t k = 0; k + 1 < kernel.outer.size(); ++k) {
    auto extent = kernel.outer[k].as_constant();
    if (extent && *extent < width / 2) continue;
    TilePlan plan;
    for (Expr e : strided) {
      auto a = ir::affine_in(e->indices[0], kernel.context->var(static_cast<int>(k)).node());
      if (a && a->coefficient.is(1)) plan.loads.push_back(e);
    }
    plan.axis = static_cast<int>(k);
    if (plan.loads.size() > best.loads.size()) best = std::move(plan);
  }
  return best;
}

} // namespace tbx::codegen
