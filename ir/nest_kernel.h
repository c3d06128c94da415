// Nest kernel: a loop nest alone as a kernel, for the evaluator.
#pragma once

#include <functional>

#include "ir/kernel.h"
#include "ir/tensor_box.h"

namespace tbx::ir {

/// Where a nest reads and writes, in terms of the kernel's buffers.
struct NestPlaces {
  std::function<Expr(Expr)> resolve;             ///< loads by number of the buffer and linear address
  std::function<int()> result;                   ///< number of the buffer of the result; asked after the body
  std::function<SymInt(const SymInts&)> address; ///< linear address of an element of the result
};

/// Gives a kernel without phases the loops and phases of the nest. A reduction gives one value per point, a
/// scan has the scanned axis as its inner loop.
void add_nest(KernelProgram& kernel, const Loops& loops, const NestPlaces& places);

} // namespace tbx::ir
