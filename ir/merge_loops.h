// Merges neighbouring loops that every address of a kernel treats as one, and drops loops of extent 1.
#pragma once

#include "ir/kernel.h"
#include "ir/size_facts.h"

namespace tbx::ir {

/// Sizes that meet in an operator have names of their own where the model does not say that they are equal:
/// `facts` does.
void merge_loops(KernelProgram& kernel, const SizeFacts& facts);

} // namespace tbx::ir
