// Fold operations: what a program computes from constants alone becomes constants, before kernels are made.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// Evaluates loop nests and scatters that read nothing but constants: tables of a Resize, sums of biases,
/// what function bodies make of their attributes. Results take a bounded number of bytes and a bounded time;
/// what is beyond that, and outputs of the program, stay. Returns the number of operations that are gone.
int fold_operations(ir::Program& program);

} // namespace tbx::fusion
