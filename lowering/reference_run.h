// Reference run: executes a lowered program operation by operation with the evaluator, without fusion or
// compiler. The oracle of tests, and what folds constants.
#pragma once

#include <vector>

#include "ir/tensor_box.h"

namespace tbx::lowering {

/// Needs inputs in the order of `program.inputs`. ModelError when shapes, checks or indices are violated;
/// UnsupportedError for extern calls.
std::vector<Tensor> run_program(const ir::Program& program, std::vector<Tensor> inputs);

} // namespace tbx::lowering
