#include "codegen/plan_threads.h"

#include <algorithm>

#include "codegen/held_rows.h"
#include "codegen/lanes.h"
#include "codegen/plan_loops.h"
#include "codegen/wide_accesses.h"

namespace tbx::codegen {

using ir::Access;
using ir::Phase;
using ir::Stmt;
using ir::StmtKind;
using ir::SymInt;

namespace {

/// Statements must run in the order of the inner points.
bool is_serial(const ir::KernelProgram& kernel, const Phase& phase) {
  if (phase.inner.empty() || is_scan_of_team(phase)) return false;
  if (!points_are_independent(phase, kernel)) return true;
  for (const Stmt& s : phase.stmts) {
    if (s.kind == StmtKind::scan || s.mode != ir::StoreMode::set) return true;
    if (s.kind != StmtKind::store) continue;
    // Where several points store to one address, the last one counts.
    if (ir::has_indirect(s.address)) return true;
    for (size_t k = 0; k < phase.inner.size(); ++k) {
      const ir::SymNode* variable = kernel.context->rvar(static_cast<int>(k)).node();
      if (!phase.inner[k].is(1) && !ir::depends_on(s.address, variable)) return true;
    }
  }
  return false;
}

/// Neighbouring threads read neighbouring elements when each takes an outer point of its own.
bool outer_is_contiguous(const ir::KernelProgram& kernel) {
  if (kernel.outer.empty()) return false;
  int across = 0, along = 0;
  const ir::SymNode* outer = kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
  for (const Phase& phase : kernel.phases) {
    if (phase.inner.empty()) continue;
    const ir::SymNode* inner = kernel.context->rvar(static_cast<int>(phase.inner.size()) - 1).node();
    for (const Stmt& s : phase.stmts)
      ir::visit(s.value, [&](ir::Expr e) {
        if (e->op != ir::Op::load) return;
        auto a = ir::affine_in(e->indices[0], outer), b = ir::affine_in(e->indices[0], inner);
        across += a && a->coefficient.is(1);
        along += b && b->coefficient.is(1);
      });
  }
  return across > along;
}

/// Few long columns of what a cache holds: a block for each reads them with gaps, but at once.
bool is_small(const ir::KernelProgram& kernel, const Gpu& gpu) {
  const int64_t columns = ir::size_hint(ir::product(kernel.outer));
  int64_t longest = 0;
  for (const Phase& phase : kernel.phases)
    longest = std::max(longest, phase.inner.empty() ? 0 : ir::size_hint(ir::product(phase.inner)));
  return columns <= 2 * gpu.blocks() && longest >= gpu.long_column &&
         longest <= gpu.l2_bytes / size_of(DType::f32) / columns && kernel.phases.size() <= 2;
}

Mapping choose_mapping(const ir::KernelProgram& kernel, const Gpu& gpu) {
  bool serial = kernel.sequential, rows = false, loops = false, longer = false;
  for (const Phase& phase : kernel.phases) {
    serial |= is_serial(kernel, phase);
    if (phase.inner.empty()) continue;
    loops = true;
    auto points = ir::product(phase.inner).as_constant();
    longer |= !points || *points > gpu.short_row;
  }
  for (const ir::KernelBuffer& b : kernel.buffers) rows |= b.access == Access::row_local;
  if (kernel.sequential || (serial && rows)) return Mapping::leader;
  if (rows) return Mapping::block;
  if (!loops || serial || !longer) return Mapping::thread;
  return outer_is_contiguous(kernel) && !is_small(kernel, gpu) ? Mapping::thread : Mapping::block;
}

/// The dimension whose neighbouring points a thread takes at once, nullptr when the phase has none.
const ir::SymNode* lane_variable(const ir::KernelProgram& kernel, const Phase& phase, Mapping mapping) {
  if (mapping == Mapping::thread)
    return kernel.outer.empty() ? nullptr
                                : kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
  return phase.inner.empty() ? nullptr
                             : kernel.context->rvar(static_cast<int>(phase.inner.size()) - 1).node();
}

/// Lanes along the last dimension, beside the loads that are turned in shared memory.
int lanes_of_tiles(const ir::KernelProgram& kernel, const TilePlan& tiles, const Gpu& gpu) {
  const int lanes = most_lanes(kernel, gpu);
  const ir::SymNode* last = kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
  bool good = known_divisor(kernel.outer.back(), nullptr, 1) % lanes == 0;
  for (const Phase& phase : kernel.phases) good = good && suits(kernel, phase, last, lanes, tiles.loads);
  return good ? lanes : 1;
}

/// Large tiles, and memory for as much more as vectors have that begin anywhere. Of narrow types there are so
/// many elements in a vector that a look at each vector's place costs more than it saves.
bool has_room_around(const ir::KernelProgram& kernel, const ThreadPlan& plan, const Gpu& gpu) {
  int64_t bytes = 0;
  for (ir::Expr e : plan.tiles.loads) bytes += size_of(kernel.buffers[e->buffer].dtype);
  return most_lanes(kernel, gpu) <= 4 && plan.tile_size >= 64 &&
         int64_t{72} * 84 * bytes <= gpu.crowded_bytes;
}

/// Of rows that are stored from tiles.
std::optional<SymInt> begin_of_tile_rows(const ir::KernelProgram& kernel, const TilePlan& tiles, int lanes) {
  std::vector<const Phase*> phases;
  for (const Phase& phase : kernel.phases) phases.push_back(&phase);
  const ir::SymNode* last = kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
  return begin_of_rows(kernel, phases, last, lanes, tiles.loads);
}

/// Larger tiles where both dimensions fill them and several blocks have memory for them.
int size_of_tiles(const ir::KernelProgram& kernel, const TilePlan& tiles, const Gpu& gpu) {
  const int64_t least = std::min(ir::size_hint(kernel.outer[tiles.axis]), ir::size_hint(kernel.outer.back()));
  int64_t bytes = 0;
  for (ir::Expr e : tiles.loads) bytes += size_of(kernel.buffers[e->buffer].dtype);
  return least >= 64 && int64_t{64} * 68 * bytes <= gpu.crowded_bytes ? 64 : 32;
}

int choose_lanes(const ir::KernelProgram& kernel, Mapping mapping, const Gpu& gpu) {
  if (kernel.sequential || mapping == Mapping::leader) return 1;
  const int lanes = most_lanes(kernel, gpu);
  if (lanes == 1) return 1;
  // A thread for each of few results that take long.
  const bool loops = std::any_of(kernel.phases.begin(), kernel.phases.end(),
                                 [](const Phase& phase) { return !phase.inner.empty(); });
  if (mapping == Mapping::thread && loops && ir::size_hint(ir::product(kernel.outer)) < gpu.threads / 4)
    return 1;
  bool any = false;
  for (const Phase& phase : kernel.phases) {
    const ir::SymNode* variable = lane_variable(kernel, phase, mapping);
    if (!variable) {
      if (mapping == Mapping::thread) return 1;
      continue; // what happens once per point stays scalar
    }
    // Vectors of a flat space may not cross the end of its last dimension.
    if (mapping == Mapping::block && phase.inner.size() > 1 &&
        known_divisor(phase.inner.back(), nullptr, 1) % lanes != 0)
      return 1;
    if (!suits(kernel, phase, variable, lanes)) return 1;
    if (mapping == Mapping::block && is_scan_of_team(phase) &&
        known_divisor(phase.inner.back(), nullptr, 1) % lanes != 0)
      return 1;
    any = true;
  }
  return any ? lanes : 1;
}

/// Of rows that a block has.
std::optional<SymInt> begin_of_long_rows(const ir::KernelProgram& kernel, int lanes, const Gpu& gpu) {
  int64_t longest = 0;
  std::vector<const Phase*> phases;
  for (const Phase& phase : kernel.phases) {
    if (phase.inner.empty()) continue;
    if (phase.inner.size() > 1 || is_scan_of_team(phase)) return std::nullopt;
    longest = std::max(longest, ir::size_hint(phase.inner[0]));
    phases.push_back(&phase);
  }
  if (longest < gpu.long_row) return std::nullopt;
  return begin_of_rows(kernel, phases, kernel.context->rvar(0).node(), lanes);
}

/// Long columns, and too few of them to fill the device with a thread for each.
bool suits_columns(const ir::KernelProgram& kernel, const Gpu& gpu) {
  if (kernel.sequential || kernel.outer.empty() || ir::size_hint(ir::product(kernel.outer)) >= gpu.threads)
    return false;
  int64_t longest = 0;
  for (const Phase& phase : kernel.phases) {
    if (is_serial(kernel, phase) || is_scan_of_team(phase)) return false;
    if (!phase.inner.empty()) longest = std::max(longest, ir::size_hint(ir::product(phase.inner)));
  }
  return longest >= gpu.short_column && outer_is_contiguous(kernel);
}

/// Neighbouring columns that a thread takes at once, where there are enough of them for many blocks.
int lanes_of_columns(const ir::KernelProgram& kernel, const Gpu& gpu) {
  const int lanes = most_lanes(kernel, gpu);
  if (ir::size_hint(ir::product(kernel.outer)) < int64_t{Gpu::kWarp} * lanes * gpu.blocks() / 8) return 1;
  if (known_divisor(kernel.outer.back(), nullptr, 1) % lanes != 0) return 1;
  const ir::SymNode* last = kernel.context->var(static_cast<int>(kernel.outer.size()) - 1).node();
  for (const Phase& phase : kernel.phases) {
    if (!suits(kernel, phase, last, lanes)) return 1;
    for (const Stmt& s : phase.stmts)
      if (s.kind == StmtKind::reduce && (s.value->dtype == DType::boolean || s.reduce > ir::ReduceOp::min))
        return 1;
  }
  return lanes;
}

/// So many rows that a warp for each of them fills the device well.
bool has_many_rows(const ir::KernelProgram& kernel, const Gpu& gpu) {
  return ir::size_hint(ir::product(kernel.outer)) >= gpu.warps() / 4;
}

/// Rows that a warp holds in registers, and enough of them to fill the device with warps.
bool suits_warps(const ir::KernelProgram& kernel, const Gpu& gpu) {
  const int64_t most_points = Gpu::kWarp * gpu.registers_of(gpu.block_threads) / 2;
  const RowWork work = row_work(kernel);
  // Long code does not stay in the cache of instructions, and is shorter with more threads for a row.
  if (work.points * work.instructions / Gpu::kWarp > gpu.warp_instructions) return false;
  for (const Phase& phase : kernel.phases) {
    auto points = ir::product(phase.inner).as_constant();
    if (!points || *points > most_points || is_scan_of_team(phase)) return false;
  }
  return has_many_rows(kernel, gpu);
}

/// Enough elements for each thread that many are on their way at once, where there are rows for all of the
/// device and their code stays short; else as few as there are in a vector.
int threads_of_rows(const ir::KernelProgram& kernel, int lanes, const Gpu& gpu) {
  const RowWork work = row_work(kernel);
  const bool many = has_many_rows(kernel, gpu) && work.instructions <= gpu.short_code;
  const int64_t each = many ? lanes * gpu.vectors_of_thread : lanes;
  const int64_t warps = (work.points + each * Gpu::kWarp - 1) / (each * Gpu::kWarp);
  return static_cast<int>(std::clamp<int64_t>(warps * Gpu::kWarp, Gpu::kWarp, gpu.block_threads));
}

} // namespace

ThreadPlan plan_threads(const ir::KernelProgram& kernel, const Gpu& gpu) {
  ThreadPlan plan;
  if ((plan.running = plan_running(kernel, gpu))) {
    plan.mapping = Mapping::running;
    plan.lanes = plan.running->lanes;
    plan.row_begin = plan.running->row_begin;
    return plan;
  }
  plan.mapping = choose_mapping(kernel, gpu);
  if (plan.mapping == Mapping::thread && kernel.outer.size() > 1) {
    constexpr int kLeast = 32; // along the axis, else lanes of a warp read little that is contiguous
    LaneAnalysis across(lane_variable(kernel, kernel.phases.front(), plan.mapping), kLeast);
    plan.tiles = plan_tiles(kernel, across, kLeast);
    if (plan.tiles.axis >= 0) {
      plan.mapping = Mapping::tile;
      plan.lanes = lanes_of_tiles(kernel, plan.tiles, gpu);
      plan.tile_size = size_of_tiles(kernel, plan.tiles, gpu);
      plan.tile_threads = gpu.tile_threads;
      plan.tile_anywhere = has_room_around(kernel, plan, gpu);
      if (const int lanes = most_lanes(kernel, gpu); plan.tile_anywhere && plan.lanes == 1 && lanes > 1)
        if ((plan.row_begin = begin_of_tile_rows(kernel, plan.tiles, lanes))) plan.lanes = lanes;
      return plan;
    }
  }
  if (plan.mapping == Mapping::thread && suits_columns(kernel, gpu)) {
    plan.mapping = Mapping::column;
    plan.lanes = lanes_of_columns(kernel, gpu);
    return plan;
  }
  plan.lanes = choose_lanes(kernel, plan.mapping, gpu);
  if (plan.mapping == Mapping::block && plan.lanes == 1 && most_lanes(kernel, gpu) > 1) {
    plan.row_begin = begin_of_long_rows(kernel, most_lanes(kernel, gpu), gpu);
    if (plan.row_begin) plan.lanes = most_lanes(kernel, gpu);
  }
  if (plan.mapping == Mapping::block && !plan.row_begin && suits_warps(kernel, gpu))
    plan.mapping = Mapping::warp;
  plan.row_threads = threads_of_rows(kernel, plan.lanes, gpu);
  return plan;
}

} // namespace tbx::codegen
