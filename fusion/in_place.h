// In-place residuals: a library call that adds a tensor nobody reads afterwards writes into that tensor's
// memory.
#pragma once

#include <vector>

#include "fusion/grouping.h"

namespace tbx::fusion {

/// Turns the first post-operation `add` of a call into `sum` where the added buffer has the result's shape
/// and memory order and dies there: the result takes over its memory (Buffer::overwrites). One tensor less is
/// read from and written to memory, and chains of residual blocks work in a single buffer. After layouts and
/// order are fixed; leaves its reason in the draft.
void add_in_place(ir::Program& program, const Dependencies& deps, std::vector<Draft>& drafts,
                  const Target& target);

} // namespace tbx::fusion
