// LaneProgram: the phases of a kernel as flat lists of values to compute for a block of lanes, operands
// before users.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/kernel.h"

namespace tbx::ir {

enum class SlotKind : uint8_t {
  op,       ///< an operator node on args
  constant, ///< node
  load,     ///< node at `address`, masked by args[0]
  accumulator,
  local,
  affine, ///< base + step * (block variable), both the same for all lanes
  sum,    ///< constant + sum of coefficient * slot
  product,
  floordiv,
  mod,
  min,
  max,
  indirect, ///< the value args[0], which must lie below args[1]
};

/// An address in elements: affine in the block variable, or computed by a slot.
struct LaneIndex {
  bool affine = false;
  SymInt base, step;
  int slot = -1;
  std::vector<int> guards; ///< indirect slots that must be in range where the address is used
};

struct Slot {
  SlotKind kind;
  Expr node = nullptr;
  int args[3] = {-1, -1, -1};
  bool uniform = false; ///< the same value in all lanes
  LaneIndex address;    ///< load; affine: base and step; `guards` of an index node used as a value
  int64_t constant = 0;
  std::vector<std::pair<int64_t, int>> terms;
  int origin = -1; ///< indirect: SymNode::origin
};

struct LaneStmt {
  const Stmt* stmt;
  int value = -1, mask = -1;
  LaneIndex address;
  size_t slots_needed = 0; ///< the statement runs when this many slots are computed
};

struct LanePhase {
  const Phase* phase;
  std::vector<Slot> slots;
  std::vector<LaneStmt> stmts;
};

/// How lanes are laid over a kernel.
struct LaneProgram {
  /// Vertical: lanes run over the last outer variable, in every phase. Otherwise over the innermost loop of a
  /// phase; a phase without inner loops has one lane.
  LaneProgram(const KernelProgram& kernel, bool vertical);

  const KernelProgram& kernel;
  bool vertical;
  std::vector<LanePhase> phases;
};

} // namespace tbx::ir
