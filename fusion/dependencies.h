// Dependencies: which buffers an operation reads and writes, and who uses what.
#pragma once

#include <vector>

#include "ir/owner.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

struct OpAccess {
  std::vector<ir::BufferId> reads,
      writes; ///< owners of the memory (slices and overwritten buffers resolved), unique
};

OpAccess access_of(const ir::Program& program, const ir::Operation& op);

struct Dependencies {
  std::vector<OpAccess> access; ///< per operation
  /// Per operation: operations that must run before it (unique). Those that must run before one of these need
  /// not be among them.
  std::vector<std::vector<int>> predecessors;
  std::vector<std::vector<int>> readers; ///< per buffer (owner): operations that read it, in order
  std::vector<std::vector<int>> writers; ///< per buffer (owner)
  std::vector<bool> is_output;           ///< per buffer (owner): a program output
};
/// Linear in the size of the program.
Dependencies analyse(const ir::Program& program);

/// Removes the operations that are marked; keeps the order.
void remove_operations(ir::Program& program, const std::vector<bool>& gone);
/// Removes operations whose results nobody needs; keeps the order.
void remove_dead_operations(ir::Program& program);

} // namespace tbx::fusion
