// States that attention appends to: the new key and value go into its kernel.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// Keys and values of a state that one token is appended to, and then read by the attention of one query: to
/// append becomes work of the attention (`appends` in extern_kernels/problem.h), where its kernel on a GPU
/// does so. What is computed for them goes into memory of its own, what is copied is read where it lies.
/// After layouts are fixed.
void append_caches(ir::Program& program);

} // namespace tbx::fusion
