// Caches that a model is given and gives out longer: attention copies them as it reads them.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// Whether the operation copies all of `from` to the beginning of `whole`, a part of which it writes.
bool copies_to_start(const ir::Program& program, const ir::Operation& op, ir::BufferId from,
                     ir::BufferId whole);

/// Keys and values that an output of the model has behind those that an input of it has: where attention
/// reads them from the output, the copy of what the input has becomes work of the attention (`carries` in
/// extern_kernels/problem.h). So it is read once, and not read again from what is written. After layouts are
/// fixed.
void carry_caches(ir::Program& program);

} // namespace tbx::fusion
