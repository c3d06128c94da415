// In-place kernels: a loop nest that is the last to read a tensor writes its result over it.
#pragma once

#include <vector>

#include "fusion/dependencies.h"
#include "fusion/schedule.h"

namespace tbx::fusion {

/// Where a kernel reads a tensor for the last time, each element at the point that stores an element of the
/// result at the same address, the result takes over its memory (Buffer::overwrites). Runs need less memory,
/// and a thread stores to lines that its core has just read: others are in the caches of other cores, from
/// where they come slowly. After kernels are built.
void write_in_place(ir::Program& program, const Target& target, const Dependencies& deps,
                    std::vector<Group>& groups);

} // namespace tbx::fusion
