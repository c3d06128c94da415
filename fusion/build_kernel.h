// Build kernel: a draft group of loop nests -> KernelProgram with phases, linear addresses and merged loops.
#pragma once

#include "fusion/grouping.h"
#include "ir/kernel.h"
#include "ir/size_facts.h"

namespace tbx::fusion {

/// Needs fixed layouts. `deps` tells which results are used outside the group, `facts` what is known of sizes
/// whenever a kernel runs.
ir::KernelProgram build_kernel(const ir::Program& program, const Dependencies& deps,
                               const ir::SizeFacts& facts, const Draft& draft);

/// Splits loops of which addresses take a remainder: i mod n becomes a loop variable. Innermost outer loops
/// stay where they would be shorter than `Target::kShortRow`; of the two that an inner loop becomes, the one
/// along which memory is nearer comes last.
void split_loops(ir::KernelProgram& kernel);

/// Sets KernelBuffer::offset to the constant that all addresses of a buffer share, and takes it out of them.
void move_offsets(ir::KernelProgram& kernel);

} // namespace tbx::fusion
