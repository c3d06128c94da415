// Constants of narrow floats as the float32 that kernels compute with.
#pragma once

#include <memory>

#include "base/tensor.h"

namespace tbx::extern_kernels {

/// f16 or bf16 elements as f32, exactly. Runs on all threads of the current arena.
void widen(DType from, const void* elements, int64_t count, float* to);

/// The elements of an f32, f16 or bf16 constant as f32, in the order they have in memory: `t` itself where it
/// is f32, else a copy of it.
std::shared_ptr<const Tensor> widened(const std::shared_ptr<const Tensor>& t);

} // namespace tbx::extern_kernels
