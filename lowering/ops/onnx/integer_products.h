// Exact products of quantised integers.
#pragma once

#include "lowering/ops/products.h"

namespace tbx::lowering {

/// Inputs `a` times `b` of the node, less their zero points (absent: 0; one value, one per row of a, or one
/// per column of b), as numpy's matmul, in i32.
TensorBox integer_matmul(OpContext& ctx, int a, int a_zero, int b, int b_zero);

/// Convolution of input `x` with `w` as the attributes of the node say, less their zero points (absent: 0; of
/// w one value or one per output channel), in i32. Padding stands for the zero point.
TensorBox integer_conv(OpContext& ctx, int x, int x_zero, int w, int w_zero);

} // namespace tbx::lowering
