// Running values of long axes in CUDA: blocks share an axis, and its tiles look back at those before them.
#pragma once

#include "codegen/plan_threads.h"
#include "codegen/writer.h"

namespace tbx::codegen {

struct RunningLoops {
  ir::SymInt tasks;
  ir::SymInt state_bytes; ///< that blocks have in common, zeros at first
};

/// Writes the loop over all tiles, a block for each.
RunningLoops emit_running(Writer& w, const ir::KernelProgram& kernel, const ThreadPlan& plan);

} // namespace tbx::codegen
