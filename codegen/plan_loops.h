// Plan loops: which variable of a kernel becomes the vector lanes, and how the outer points split into tasks.
#pragma once

#include "codegen/emit.h"
#include "codegen/tiles.h"
#include "ir/kernel.h"

namespace tbx::codegen {

enum class LoopShape : uint8_t {
  vertical,   ///< lanes along the last outer variable; inner loops are scalar, accumulators vectors
  horizontal, ///< lanes along the innermost inner variable of each phase that allows it; row-level work is
              ///< scalar
};

struct LoopPlan {
  TilePlan tiles; ///< vertical pointwise kernels
  /// Vertical pointwise kernels: the outer variable whose few points are computed together, since what they
  /// store lies beside each other, as with channels last; -1: none.
  int beside = -1;
  LoopShape shape = LoopShape::horizontal;
  std::vector<bool> vector_phase; ///< horizontal: lanes along the phase's innermost variable
  int64_t points_per_task = 1;    ///< outer points (vertical: of all but the last dimension) one task runs
  int64_t block = 0;              ///< vertical: elements of the last dimension per task; 0: all of it
  double cost_per_task = 0;
};

/// Points of the phase may run in any order: none reads what another one writes.
bool points_are_independent(const ir::Phase& phase, const ir::KernelProgram& kernel);

/// The last vector along `variable`, of constant extent, may be computed over lanes that were done before:
/// results do not change when points of these phases run twice.
bool can_overlap(const ir::KernelProgram& kernel, const std::vector<const ir::Phase*>& phases,
                 ir::SymInt variable, int width);

LoopPlan plan_loops(const ir::KernelProgram& kernel, const Target& target);

} // namespace tbx::codegen
