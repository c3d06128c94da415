// Loops: the nests of one kernel around the Writer's values.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "codegen/plan_loops.h"
#include "codegen/reductions.h"
#include "codegen/writer.h"

namespace tbx::codegen {

class LoopEmitter {
public:
  LoopEmitter(const ir::KernelProgram& kernel, const Target& target);

  EmittedKernel emit();

private:
  void emit_horizontal();
  void emit_vertical();
  /// Vertical, with loads contiguous in another variable read through transposed blocks.
  void emit_tiled(const ir::SymInts& rows, LaneAnalysis& lanes);
  /// The few points along plan_.beside, whose results are stored together.
  void emit_beside();
  /// Opens the loop over the outer points of this call, variables of `extents` bound; `tasks` of them per
  /// task.
  void open_points(const ir::SymInts& extents);
  void next_point(const ir::SymInts& extents);
  void emit_phases();
  void emit_phase(const ir::Phase& phase, bool vector);
  void emit_loops(const ir::Phase& phase, size_t level, bool vector, Reductions& reductions);
  void emit_stmts(const ir::Phase& phase, Reductions& reductions, int copy);

  /// How many vectors a step of the lane loop handles side by side. Bodies light enough to be bound by the
  /// latency of one accumulator are worth several; so are those of long chains of operations, of which the
  /// processor's window holds less than two.
  int vectors_per_step(const ir::Phase& phase, ir::SymInt extent) const;
  int vectors_per_reduction(ir::SymInt extent) const;

  /// Whether a short rest is done element by element: lanes that are gathered, or narrow, are read and
  /// written so without masks of the processor, and a line may have a few elements in all.
  bool takes_single_elements(LaneAnalysis& lanes) const;
  /// `body(live)` over [lo, hi) in steps of W; the rest, if there can be one, with `live` lanes. A constant
  /// `extent` is hi - lo. With unroll > 1, body runs that many times per step, told which.
  void lane_loop(ir::SymInt variable, LaneAnalysis& lanes, const std::string& lo, const std::string& hi,
                 std::optional<int64_t> extent, int unroll, const std::function<void(int)>& body);

  const ir::KernelProgram& kernel_;
  const int width_;
  const LoopPlan plan_;
  Writer w_;
  ir::SymInt tasks_ = 1;
  /// The constant extent of the lane loop whose last vector may overlap the one before.
  std::optional<int64_t> overlap_;
  std::string overlap_mask_; ///< lanes not done before
};

} // namespace tbx::codegen
