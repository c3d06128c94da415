// Operands of library kernels that are buffers as they are.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// All of a buffer, index by index.
ir::ExternOperand whole(const ir::Program& program, ir::BufferId id);
/// Whether an operand is all of its buffer, of four dimensions, index by index.
bool is_whole(const ir::Program& program, const ir::ExternOperand& operand);

} // namespace tbx::fusion
