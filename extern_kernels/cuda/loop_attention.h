// Parameters that our own kernels of attention have in common.
#pragma once

#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels::cuda {

AttentionArguments attention_arguments(const AttentionProblem& problem, std::span<const TensorRef> inputs,
                                       const TensorRef& out);

} // namespace tbx::extern_kernels::cuda
