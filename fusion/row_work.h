// Row work: what comes before and behind a product of one row with a constant matrix moves into its kernel.
#pragma once

#include "base/target.h"
#include "ir/tensor_box.h"

namespace tbx::fusion {

/// Behind fuse_post_ops, for a GPU: the norm of the row, and the gate or activation behind the product,
/// become part of the call where its kernel takes them. Steps of decoders start fewer kernels so; each block
/// norms the row for itself.
void fuse_row_work(ir::Program& program, const Target& target);

} // namespace tbx::fusion
