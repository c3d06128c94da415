#include "codegen/plan_running.h"

#include <algorithm>
#include <limits>

#include "codegen/lanes.h"
#include "codegen/wide_accesses.h"

namespace tbx::codegen {

using ir::Phase;
using ir::Stmt;
using ir::SymInt;

namespace {

/// Of registers of a thread, half of those that it may have: what is on its way. The longer a tile is, the
/// fewer totals are published and waited for.
constexpr int64_t kHeldBytes = 256, kMostSteps = 32;

const ir::SymNode* along_axis(const ir::KernelProgram& kernel) { return kernel.context->rvar(0).node(); }

bool has_indirect_loads(const Stmt& s) {
  bool any = false;
  ir::visit(ir::values_of(s), [&](ir::Expr e) {
    any |= std::any_of(e->indices.begin(), e->indices.end(), [](SymInt i) { return ir::has_indirect(i); });
  });
  return any;
}

/// As many threads with columns of their own that few of them have none; the fewer these are, the more others
/// have to tell each other, and the shorter are the lines that they read.
int width_of(int64_t columns, int lanes) {
  const int64_t vectors = (columns + lanes - 1) / lanes;
  int best = 1;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int width = 1; width <= Gpu::kWarp; width *= 2) {
    const int64_t threads = (vectors + width - 1) / width * width, cost = threads + 8 * threads / width;
    if (cost <= least) best = width, least = cost;
  }
  return best;
}

} // namespace

SymInt RunPlan::tiles(SymInt length) const {
  // Rows that begin anywhere have less than a vector more.
  return ir::ceildiv(row_begin ? length + SymInt(lanes - 1) : length, SymInt(points()));
}

bool is_scan_of_team(const Phase& phase) {
  if (phase.inner.size() != 1 || phase.stmts.size() != 1) return false;
  const Stmt& s = phase.stmts[0];
  bool good = s.kind == ir::StmtKind::scan && s.mode == ir::StoreMode::set && !s.mask &&
              s.value->dtype != DType::boolean && s.reduce <= ir::ReduceOp::min &&
              !ir::has_indirect(s.address);
  ir::visit(s.value, [&](ir::Expr e) { good &= e->op != ir::Op::load || e->buffer != s.buffer; });
  return good;
}

ir::KernelProgram from_the_end(ir::KernelProgram kernel) {
  for (Phase& phase : kernel.phases) {
    const SymInt n = phase.inner[0];
    const ir::Substitution turned{{}, {n - SymInt(1) - kernel.context->rvar(0)}};
    const ir::Extents extents = kernel.extents(phase);
    for (Stmt& s : phase.stmts) {
      s.value = ir::simplify(ir::substitute(s.value, turned), extents);
      s.address = ir::simplify(ir::substitute(s.address, turned), extents);
    }
  }
  return kernel;
}

std::optional<RunPlan> plan_running(const ir::KernelProgram& kernel, const Gpu& gpu) {
  if (kernel.sequential || kernel.phases.size() != 1 || !is_scan_of_team(kernel.phases[0]))
    return std::nullopt;
  const Phase& phase = kernel.phases[0];
  const Stmt& s = phase.stmts[0];
  if (has_indirect_loads(s) || std::any_of(kernel.buffers.begin(), kernel.buffers.end(), [](const auto& b) {
        return b.access == ir::Access::row_local || b.may_alias;
      }))
    return std::nullopt;
  RunPlan plan;
  const auto place = ir::affine_in(s.address, along_axis(kernel));
  plan.backwards = place && place->coefficient.is(-1);
  plan.along = plan.backwards || (place && place->coefficient.is(1)) || kernel.outer.empty();
  const int64_t others = ir::size_hint(ir::product(kernel.outer));
  const auto length = phase.inner[0].as_constant();
  if (plan.along ? others > gpu.blocks() : others > gpu.threads / 4) return std::nullopt;
  if (length && *length < (plan.along ? gpu.long_scan_of_row : gpu.long_scan_of_column)) return std::nullopt;

  const int64_t computed = std::max<int64_t>(4, size_of(s.value->dtype));
  int64_t held = computed; // bytes of an element
  if (plan.along) {
    const int most = most_lanes(kernel, gpu);
    const ir::KernelProgram turned = plan.backwards ? from_the_end(kernel) : kernel;
    const bool whole = !plan.backwards || known_divisor(phase.inner[0], nullptr, 1) % most == 0;
    if (whole && suits(turned, turned.phases[0], along_axis(kernel), most))
      plan.lanes = most;
    else if ((plan.row_begin =
                  begin_of_rows(turned, {&turned.phases[0]}, along_axis(kernel), most, {}, plan.backwards)))
      plan.lanes = most;
  } else {
    const SymInt columns = kernel.outer.back();
    const ir::SymNode* last = kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
    // No wider than an access of what is computed: a tile is to have many rows, whose columns tell each
    // other.
    for (auto lanes = static_cast<int>(Gpu::kAccessBytes / computed); lanes > 1 && plan.lanes == 1;
         lanes /= 2)
      if (known_divisor(columns, nullptr, 1) % lanes == 0 && suits(kernel, phase, last, lanes))
        plan.lanes = lanes;
    plan.width = width_of(ir::size_hint(columns), plan.lanes);
    const int64_t loaded =
        s.value->op == ir::Op::load && !s.value->mask() ? size_of(kernel.buffers[s.value->buffer].dtype) : 4;
    plan.narrow = loaded < 4;
    if (plan.narrow) held = loaded;
  }
  plan.steps = static_cast<int>(std::clamp<int64_t>(kHeldBytes / (plan.lanes * held), 1, kMostSteps));
  plan.fan = std::min(Gpu::kWarp, RunPlan::kThreads / Gpu::kWarp * plan.rows());
  return plan;
}

} // namespace tbx::codegen
