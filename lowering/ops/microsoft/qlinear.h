// Per-tensor quantisation parameters as com.microsoft's operators over 8-bit tensors have them.
#pragma once

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// The single element of input `i`, whatever its rank: a number where it is known while compiling.
/// ModelError, or a check while running, when there are more.
Expr one_value(OpContext& ctx, int i);

/// Parameters of a quantised tensor: real = scale * (integer - zero).
struct Scaled {
  Expr scale; ///< f32
  Expr zero;  ///< i32
};

/// Inputs `scale` and `zero` (may be absent: 0) of a tensor of type `type`.
Scaled scaled(OpContext& ctx, int scale, int zero, DType type);

/// The f32 that `x` stands for.
Expr dequantized(Expr x, const Scaled& s);

/// The type of input `i`: ModelError unless i8 or u8.
DType byte_type(OpContext& ctx, int i);

} // namespace tbx::lowering
