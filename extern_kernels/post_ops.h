// Post-operations on runs of results, in vectors as wide as the CPU's.
#pragma once

#include <cstdint>

#include "extern_kernels/problem.h"

namespace tbx::extern_kernels {

/// An operation without an operand, in place; `n` values are whole vectors of this CPU.
void activate(const PostOp& op, float* x, int64_t n);

/// One with an operand, whose values are `step` apart; any `n`.
void combine(PostOp::Kind kind, float* x, const float* operand, int64_t step, int64_t n);

} // namespace tbx::extern_kernels
