// How a product of tensors is one of cuBLASLt's matrices, and loops over those that it does not count itself.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "extern_kernels/cuda/epilogue.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

/// A dimension of the batch and what a step along it is in each operand.
struct BatchStep {
  int64_t size, a, b, c, residual;
};

/// The products that one call of the kernel is: a Gemm, and loops over the batches that it does not count
/// itself.
struct Products {
  Gemm gemm;
  std::vector<BatchStep> outer;
  std::string refusal;
};

/// `in`, `c`: sizes and strides; addresses are not looked at.
Products products_of(const MatMulProblem& p, const Epilogue& e, std::span<const TensorRef> in,
                     const TensorRef& c);

} // namespace tbx::extern_kernels::cuda
