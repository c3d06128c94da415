// The meaning of every Op on single values: used by constant folding and by the evaluator, so it is written
// once.
#pragma once

#include <cstdint>

#include "ir/expr.h"

namespace tbx::ir {

/// A value of a compute type. Integers and bool are kept in `i` (wrapped to their width, sign- or
/// zero-extended), f32 and f64 in `f` (an f32 value is exactly representable as float).
struct Scalar {
  int64_t i = 0;
  double f = 0;
};

Scalar apply_unary(Op op, DType type, Scalar a);
/// `type` is that of the operands.
Scalar apply_binary(Op op, DType type, Scalar a, Scalar b);
Scalar apply_cast(DType from, DType to, Scalar a);
Scalar apply_bitcast(DType from, DType to, Scalar a);
/// `a` is f32.
Scalar apply_round(DType format, bool saturate, Scalar a);
/// `v` wrapped to the width of an integer type; bool becomes 0 or 1.
int64_t wrap_integer(DType type, int64_t v);

/// Uniform in [0, 1): Philox-4x32-10 of (seed, counter), 24 bits.
float philox_uniform(int64_t seed, int64_t counter);

} // namespace tbx::ir
