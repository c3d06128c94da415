// Tiles: loads that are contiguous in another outer variable than the stores, as transposes write them.
#pragma once

#include <vector>

#include "codegen/lanes.h"
#include "ir/kernel.h"

namespace tbx::codegen {

struct TilePlan {
  int axis = -1;               ///< the outer variable in which the loads are contiguous; -1: no tiles
  std::vector<ir::Expr> loads; ///< read through a transposed block of lanes x lanes elements
};

/// For pointwise kernels with `lanes` along the last outer variable.
TilePlan plan_tiles(const ir::KernelProgram& kernel, LaneAnalysis& lanes, int width);

} // namespace tbx::codegen
