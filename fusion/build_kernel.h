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

/// Splits outer loops of which addresses take a remainder: i mod n becomes a loop variable. Innermost loops
/// stay where they would be shorter than `Target::kShortRow`.
void split_loops(ir::KernelProgram& kernel);

/// Merges neighbouring loops that every address treats as one, and drops loops of extent 1. Sizes that meet
/// in an operator have names of their own where the model does not say that they are equal: `facts` does.
void merge_loops(ir::KernelProgram& kernel, const ir::SizeFacts& facts);

/// Sets KernelBuffer::offset to the constant that all addresses of a buffer share, and takes it out of them.
void move_offsets(ir::KernelProgram& kernel);

} // namespace tbx::fusion
