// Plan threads: what a thread of a GPU does of a kernel, and how many points it takes at once.
#pragma once

#include <cstdint>
#include <optional>

#include "base/target.h"
#include "codegen/plan_running.h"
#include "codegen/tiles.h"
#include "ir/kernel.h"

namespace tbx::codegen {

enum class Mapping : uint8_t {
  thread,  ///< per outer point; inner loops are serial
  block,   ///< per outer point; inner points spread over its threads
  warp,    ///< the same with the threads of a warp, which wait for each other at no cost
  column,  ///< a lane of a block's warps per outer point; the warps share its inner points
  tile,    ///< a block per tile of two outer dimensions, turned in shared memory
  running, ///< a block per tile of an axis along which values run
  leader,  ///< a block whose first thread does all: order within a point matters and rows need a place
};

struct ThreadPlan {
  Mapping mapping = Mapping::thread;
  /// Neighbouring points of the last outer (thread) or innermost inner (block) dimension that a thread takes
  /// at once, so that its accesses are 16 bytes wide; 1 where addresses do not allow that.
  int lanes = 1;
  int row_threads = 0; ///< Mapping::block: that suit rows of known length
  /// Mapping::block, where rows (along the last dimension) begin anywhere: the element of memory that point 0
  /// of a row has. Vectors begin where it and the point are a multiple of the lanes; less than a
  /// vector is left at both ends of a row.
  std::optional<ir::SymInt> row_begin;
  std::optional<RunPlan> running; ///< Mapping::running
  TilePlan tiles;                 ///< Mapping::tile: the loads that are turned
  int tile_size = 32;             ///< points of a tile along each of its two dimensions
  int tile_threads = 0;           ///< of the block that has one
  bool tile_anywhere = false;     ///< has room for vectors that are not whole in it
};

ThreadPlan plan_threads(const ir::KernelProgram& kernel, const Gpu& gpu);

} // namespace tbx::codegen
