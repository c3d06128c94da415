// Tiles of CUDA kernels: what lies along another dimension than the one that is stored is turned in shared
// memory.
#pragma once

#include "codegen/plan_threads.h"
#include "codegen/writer.h"

namespace tbx::codegen {

/// Writes the loop over all tiles, a block for each; their number.
ir::SymInt emit_tiles(Writer& w, const ir::KernelProgram& kernel, const ThreadPlan& plan);

} // namespace tbx::codegen
