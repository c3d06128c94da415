// Rotation of queries and new keys inside of the attention that appends.
#pragma once

#include "ir/tensor_box.h"

namespace tbx::fusion {

/// Queries and new keys that are rotated by the same angles, and that nobody but their attention reads: to
/// rotate becomes its work (`rotation` in extern_kernels/problem.h). Cosines and sines are read where they
/// lie; those that are found by position are put into memory once, for all layers. After append_caches.
void rotate_heads(ir::Program& program);

} // namespace tbx::fusion
