// A small cost model, in cycles per outer point, decides between lanes along rows and lanes across rows.
#include "codegen/plan_loops.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/task_work.h"
#include "codegen/lanes.h"

namespace tbx::codegen {

using ir::Access;
using ir::Expr;
using ir::KernelProgram;
using ir::Op;
using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::StoreMode;
using ir::SymInt;
using ir::SymKind;
using ir::SymNode;

namespace {

constexpr int64_t kAssumedSize = 256; ///< extent of a symbol without a known value
constexpr int64_t kTaskElements = kTaskWork.generated_elements;
constexpr int64_t kBlock = 1024; ///< pointwise: elements of the last dimension per task
constexpr double kNextPoint = 1; ///< cycles from one outer point to the next, and of its addresses

double hint(SymInt e) { return static_cast<double>(std::max<int64_t>(1, ir::size_hint(e, kAssumedSize))); }
double hint(const ir::SymInts& extents) {
  double n = 1;
  for (SymInt e : extents) n *= hint(e);
  return n;
}

/// Elements so far apart that all of them lie in the same set of the first-level cache, which has room for
/// some.
bool meet_in_a_set(const LaneForm& f, DType type) {
  constexpr int64_t kSets = 4096; // bytes
  const auto stride = f.stride.as_constant();
  return stride && *stride != 0 && *stride * size_of(type) % kSets == 0;
}

/// Cycles of the statements at one point, or at `lanes` points together when the analysis has a variable.
double cycles(const Phase& phase, const KernelProgram& kernel, LaneAnalysis& lanes, int width) {
  const bool vector = lanes.variable() != nullptr;
  auto access = [&](int buffer, SymInt address, bool row_vector) {
    // Wider elements than f32 move as several registers; f16 and the like convert.
    double wide = std::max(1.0, static_cast<double>(size_of(kernel.buffers[buffer].dtype)) / 4);
    if (!vector) return 1.0;
    LaneForm f = row_vector ? LaneForm{} : lanes.form(address);
    if (row_vector || (f.kind == LaneForm::affine && f.stride.is(1))) return wide;
    if (f.kind == LaneForm::uniform) return 0.5;
    if (f.repeat != 0) return 3.0;
    if (f.steps) return 3.0 * wide * (1 + width / static_cast<double>(f.steps->args[1].constant()));
    return (f.kind == LaneForm::affine && !meet_in_a_set(f, kernel.buffers[buffer].dtype) ? 1.0 : 2.0) *
           width;
  };
  double total = 0;
  std::set<Expr> seen;
  for (const Stmt& s : phase.stmts) {
    bool vertical_row = s.buffer >= 0 && kernel.buffers[s.buffer].access == Access::row_local;
    if (s.buffer >= 0)
      total += access(s.buffer, s.address, vertical_row && vector && lanes.variable()->kind == SymKind::var);
    if (s.mode != StoreMode::set) total += 2.0 * width;
    if (s.kind == StmtKind::reduce || s.kind == StmtKind::scan) total += 1;
    ir::visit(ir::values_of(s), [&](Expr e) {
      if (!seen.insert(e).second) return;
      if (e->op == Op::load) {
        bool row = kernel.buffers[e->buffer].access == Access::row_local;
        total += access(e->buffer, e->indices[0], row && vector && lanes.variable()->kind == SymKind::var);
      } else if (ir::is_expensive(e->op)) {
        total += e->dtype == DType::f64 ? 20.0 * (vector ? width : 1) : 12;
      } else if (e->op != Op::constant && e->op != Op::accumulator && e->op != Op::local) {
        total += is_integer(e->dtype) && (e->op == Op::div || e->op == Op::floor_mod)
                     ? 10.0 * (vector ? width : 1)
                     : 0.6;
      }
    });
  }
  return total;
}

/// Cycles from the lanes of all accumulators to one value of each.
double folding(const Phase& phase) {
  constexpr double kAll = 10, kPlace = 30; // the place of the best one takes several steps more
  double total = kAll;
  for (const Stmt& s : phase.stmts)
    if (s.kind == StmtKind::reduce && s.reduce >= ir::ReduceOp::argmax) total += kPlace;
  return total;
}

bool has_scan(const Phase& phase) {
  return std::any_of(phase.stmts.begin(), phase.stmts.end(),
                     [](const Stmt& s) { return s.kind == StmtKind::scan; });
}

/// What has a value of its own in each lane, where these are rows: as the writer finds it.
void mark_varying(const KernelProgram& kernel, LaneAnalysis& lanes) {
  for (size_t b = 0; b < kernel.buffers.size(); ++b)
    if (kernel.buffers[b].access == Access::row_local) lanes.set_varying_buffer(static_cast<int>(b));
  for (const Phase& phase : kernel.phases)
    for (const Stmt& s : phase.stmts) {
      if (s.kind == StmtKind::store || !(lanes.varies(s.value) || lanes.varies(s.mask))) continue;
      if (s.kind == StmtKind::let)
        lanes.set_varying_local(s.number);
      else
        lanes.set_varying_accumulator(s.number);
    }
}

bool vertical_is_possible(const KernelProgram& kernel, LaneAnalysis& lanes) {
  if (kernel.outer.empty()) return false;
  for (const Phase& phase : kernel.phases) {
    if (kernel.sequential && !points_are_independent(phase, kernel)) return false;
    for (const Stmt& s : phase.stmts) {
      bool row = s.buffer >= 0 && kernel.buffers[s.buffer].access == Access::row_local;
      if (row && (lanes.varies(s.address) || s.mode != StoreMode::set)) return false;
      bool ok = true;
      ir::visit(ir::values_of(s), [&](Expr e) {
        if (e->op == Op::load && kernel.buffers[e->buffer].access == Access::row_local)
          ok &= !lanes.varies(e->indices[0]);
      });
      if (!ok) return false;
    }
  }
  if (kernel.sequential) {
    // The order of points shows when phases or several stores touch the same memory.
    std::set<int> written;
    for (const Phase& phase : kernel.phases)
      for (const Stmt& s : phase.stmts)
        if (s.buffer >= 0 && (!phase.inner.empty() || !written.insert(s.buffer).second)) return false;
  }
  return true;
}

/// Row-local values of one lane group beyond the second-level cache cost more than lanes gain.
double row_local_bytes(const KernelProgram& kernel) {
  double bytes = 0;
  for (const ir::KernelBuffer& b : kernel.buffers)
    if (b.access == Access::row_local) bytes += hint(b.numel) * static_cast<double>(size_of(b.dtype));
  return bytes;
}

/// The outer variable for LoopPlan::beside: its 2 to 4 points lie beside each other where the lanes are as
/// many elements apart.
int find_beside(const KernelProgram& kernel, LaneAnalysis& lanes) {
  if (kernel.sequential || kernel.outer.size() < 2 || kernel.phases.size() != 1) return -1;
  const Phase& phase = kernel.phases[0];
  if (!phase.inner.empty() || phase.stmts.size() != 1) return -1;
  const Stmt& s = phase.stmts[0];
  if (s.kind != StmtKind::store || s.mode != StoreMode::set || s.mask || ir::has_indirect(s.address))
    return -1;
  const ir::KernelBuffer& buffer = kernel.buffers[s.buffer];
  bool is_read = buffer.may_alias || buffer.access == Access::row_local;
  ir::visit(s.value, [&](Expr e) { is_read |= e->op == Op::load && e->buffer == s.buffer; });
  const LaneForm form = lanes.form(s.address);
  if (is_read || form.kind != LaneForm::affine) return -1;
  constexpr int64_t kMost = 4;
  for (size_t k = 0; k + 1 < kernel.outer.size(); ++k) {
    const std::optional<int64_t> n = kernel.outer[k].as_constant();
    if (!n || *n < 2 || *n > kMost || !form.stride.is(*n)) continue;
    const auto place = ir::affine_in(s.address, kernel.context->var(static_cast<int>(k)).node());
    if (place && place->coefficient.is(1)) return static_cast<int>(k);
  }
  return -1;
}

int64_t power_of_two_at_least(double n) {
  int64_t p = 1;
  while (static_cast<double>(p) < n) p *= 2;
  return p;
}

} // namespace

bool can_overlap(const KernelProgram& kernel, const std::vector<const Phase*>& phases, SymInt variable,
                 int width) {
  const bool across = variable.node()->kind == SymKind::var;
  const SymInt extent =
      across ? kernel.outer[variable.node()->number] : phases[0]->inner[variable.node()->number];
  auto n = extent.as_constant();
  if (!n || *n < width || *n % width == 0 || kernel.sequential) return false;
  std::set<int> written, read;
  bool ok = true;
  auto check_index = [&](SymInt e) {
    // Divided indices count on vectors that begin at multiples of their width.
    ir::visit(e, [&](const SymNode& node) {
      if (node.kind == SymKind::floordiv || node.kind == SymKind::mod)
        ok &= !ir::depends_on(SymInt(&node), variable.node());
    });
  };
  for (const Phase* phase : phases)
    for (const Stmt& s : phase->stmts) {
      ok &= s.mode == StoreMode::set;
      if (s.buffer >= 0) {
        check_index(s.address);
        written.insert(s.buffer);
      }
      ir::visit(ir::values_of(s), [&](Expr e) {
        for (SymInt i : e->indices) check_index(i);
        if (e->op == Op::load) read.insert(e->buffer);
      });
    }
  for (int b : written) {
    // Row-local values of a vertical kernel belong to one vector of points and are written before they are
    // read.
    if (across && kernel.buffers[b].access == Access::row_local) continue;
    ok &= !read.contains(b) && !kernel.buffers[b].may_alias;
  }
  return ok;
}

bool points_are_independent(const Phase& phase, const KernelProgram& kernel) {
  std::map<int, SymInt> written;
  for (const Stmt& s : phase.stmts) {
    if (s.buffer < 0) continue;
    auto [it, fresh] = written.emplace(s.buffer, s.address);
    if (!fresh && (it->second != s.address || s.mode != StoreMode::set)) return false;
  }
  bool ok = true;
  for (const Stmt& s : phase.stmts)
    ir::visit(ir::values_of(s), [&](Expr e) {
      if (e->op != Op::load) return;
      auto it = written.find(e->buffer);
      if (it != written.end()) ok &= it->second == e->indices[0];
      if (!kernel.buffers[e->buffer].may_alias) return;
      for (auto& [b, address] : written)
        if (kernel.buffers[b].may_alias) ok &= address == e->indices[0];
    });
  return ok;
}

LoopPlan plan_loops(const KernelProgram& kernel, const Target& target) {
  const int width = target.cpu_lanes();
  LoopPlan plan;
  ir::Context& c = *kernel.context;
  LaneAnalysis none(nullptr, width);

  double horizontal = kNextPoint;
  for (const Phase& phase : kernel.phases) {
    double points = hint(phase.inner), scalar = points * cycles(phase, kernel, none, width);
    bool vector = false;
    if (!phase.inner.empty() && !has_scan(phase) && points_are_independent(phase, kernel)) {
      LaneAnalysis lanes(c.rvar(static_cast<int>(phase.inner.size()) - 1).node(), width);
      double n = hint(phase.inner.back());
      double cost =
          points / n * (std::ceil(n / width) * cycles(phase, kernel, lanes, width) + folding(phase));
      if (cost < scalar * 1.2) vector = true, scalar = cost;
    }
    plan.vector_phase.push_back(vector);
    horizontal += scalar;
  }

  double vertical = INFINITY, n = 1;
  if (!kernel.outer.empty()) {
    LaneAnalysis lanes(c.var(static_cast<int>(kernel.outer.size()) - 1).node(), width);
    n = hint(kernel.outer.back());
    mark_varying(kernel, lanes);
    if (vertical_is_possible(kernel, lanes)) {
      vertical = 0;
      for (const Phase& phase : kernel.phases)
        vertical += hint(phase.inner) * cycles(phase, kernel, lanes, width);
      vertical *= std::ceil(n / width) / n;
      const double rows = row_local_bytes(kernel) * width; // side by side
      if (4 * rows > static_cast<double>(target.l2_bytes)) vertical *= 4;
    }
  }

  double per_point = std::min(horizontal, vertical);
  double work = 1; // elements per outer point
  for (const Phase& phase : kernel.phases) work = std::max(work, hint(phase.inner));
  if (vertical <= horizontal) {
    plan.shape = LoopShape::vertical;
    auto extent = kernel.outer.back().as_constant();
    int64_t block = std::clamp(power_of_two_at_least(kBlock / work), int64_t{64}, kBlock);
    LaneAnalysis lanes(c.var(static_cast<int>(kernel.outer.size()) - 1).node(), width);
    plan.tiles = plan_tiles(kernel, lanes, width);
    if (plan.tiles.axis < 0) plan.beside = find_beside(kernel, lanes);
    if (plan.beside >= 0) {
      // A vector of each is stored as whole vectors, by two shuffles.
      work = hint(kernel.outer[plan.beside]);
      per_point = work * std::max(per_point - 1 + 3.0 / width, 0.0);
    }
    if (plan.tiles.axis >= 0) {
      // A point of a task is a block of `width` along the tiles' axis.
      plan.points_per_task = std::clamp<int64_t>(
          static_cast<int64_t>(static_cast<double>(kTaskElements) / (n * width)), 1, kTaskElements);
      per_point = std::min(per_point, static_cast<double>(4 * plan.tiles.loads.size() + 4) / width);
      plan.cost_per_task = per_point * n * width * static_cast<double>(plan.points_per_task);
    } else if (kernel.sequential || (extent && *extent <= block)) {
      plan.points_per_task = std::clamp<int64_t>(
          static_cast<int64_t>(static_cast<double>(kTaskElements) / (n * work)), 1, kTaskElements);
      plan.cost_per_task = per_point * n * static_cast<double>(plan.points_per_task);
    } else {
      plan.block = block;
      plan.cost_per_task = per_point * std::min(n, static_cast<double>(block));
    }
  } else {
    plan.points_per_task = std::clamp<int64_t>(
        static_cast<int64_t>(static_cast<double>(kTaskElements) / work), 1, kTaskElements);
    plan.cost_per_task = per_point * static_cast<double>(plan.points_per_task);
  }
  if (kernel.sequential) plan.cost_per_task = per_point * hint(kernel.outer);
  plan.cost_per_task /= Target::kCyclesPerNs;
  return plan;
}

} // namespace tbx::codegen
