// Plan running values: how blocks of a GPU share a long axis along which they run.
#pragma once

#include <cstdint>
#include <optional>

#include "base/target.h"
#include "ir/kernel.h"

namespace tbx::codegen {

/// A team computes the running values of the phase together: nothing else happens in it.
bool is_scan_of_team(const ir::Phase& phase);

/// A block has a tile of the axis: `width` threads of a warp have columns of their own, the others follow one
/// another along the axis. What blocks tell each other is in codegen/prelude/cuda_running.inc.
struct RunPlan {
  static constexpr int kThreads = 256; ///< of a block

  bool along = false; ///< the axis is contiguous: a thread's lanes go along it (and `width` is 1), not across
  bool backwards = false; ///< the kernel is written for rvar(0) in the order of memory, which ends the axis
  int lanes = 1;
  std::optional<ir::SymInt> row_begin; ///< as that of ThreadPlan
  bool narrow = false; ///< across: threads hold elements as they are in memory, and convert them twice
  int width = 1;
  int steps = 1; ///< of a thread
  int fan = 32;  ///< tiles that are a group

  int rows() const { return Gpu::kWarp / width; } ///< threads of a warp that follow one another
  /// Of a tile, along the axis.
  int64_t points() const { return int64_t{kThreads} / width * steps * (along ? lanes : 1); }
  /// Tiles, or groups of them, that are next to each other.
  ir::SymInt tiles(ir::SymInt length) const;
  /// Columns that have a tile together, of so many.
  ir::SymInt chunks(ir::SymInt columns) const { return ir::ceildiv(columns, ir::SymInt(width * lanes)); }
};

/// Nothing where other threads suit the kernel: where rows or columns are short, or so many that they fill
/// the device, and where an index that comes from data may end a thread that others wait for.
std::optional<RunPlan> plan_running(const ir::KernelProgram& kernel, const Gpu& gpu);

/// The same kernel with rvar(0) counted from the other end of the axis.
ir::KernelProgram from_the_end(ir::KernelProgram kernel);

} // namespace tbx::codegen
