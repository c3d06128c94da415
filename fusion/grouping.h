// Grouping: which loop nests become one kernel.
//
// A group has axes; each member maps its loop variables to them one to one. Once a member reduces, its
// reduced axes are the group's inner axes: members either cover all inner axes (row work) or none (one value
// per row), and all cover the outer axes. A member may read what another member wrote at the same point, or,
// when the other belongs to an earlier phase, anywhere in the same row. What joins a group of which it reads
// nothing is in horizontal_fusion.h.
#pragma once

#include <string>
#include <vector>

#include "fusion/dependencies.h"
#include "fusion/schedule.h"

namespace tbx::fusion {

struct Member {
  static constexpr int kUnit = -1;            ///< no axis: the variable has extent 1
  static constexpr int kUnbound = -2;         ///< no axis yet; of no member of a draft
  int op = -1;                                ///< operation of the program
  std::vector<int> axis_of_var, axis_of_rvar; ///< group axis per loop variable
  int short_axis = -1;                        ///< along which it runs over `end` points only; -1: none
  ir::SymInt end = 0;
};

struct Draft {
  ir::SymInts axes;        ///< extents
  std::vector<bool> inner; ///< per axis; all false while no member reduces
  std::vector<Member> members;
  std::vector<std::string> decisions;
  bool fusable = true; ///< false: extern calls, scatters, scans
  bool has_reduction = false;
  int work = 0; ///< arithmetic operations per element, transcendental ones counted by their length
  int first_op = 0, last_op = 0;
};

/// The nest of an operation; nullptr: it is none.
const ir::Compute* compute_of(const ir::Program& program, int op);
/// The result is a place in the order of the reduced loops, which a kernel has to keep then.
inline bool counts_places(const ir::Loops& loops) {
  return loops.kind == ir::LoopKind::reduction && loops.reduce >= ir::ReduceOp::argmax;
}
/// Binds a variable to an axis of the draft, where it has none and is as long. False where it runs over
/// another.
bool bind_variable(const Draft& draft, std::vector<int>& axis_of, int variable, int axis, ir::SymInt extent);

/// Drafts in a valid execution order.
std::vector<Draft> group_operations(const ir::Program& program, const Dependencies& deps,
                                    const Target& target, const ScheduleOptions& options);

} // namespace tbx::fusion
