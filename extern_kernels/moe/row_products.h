// Products of a few rows with a matrix as models store it, [columns, k]: sums along contiguous memory, so
// that the matrix is read once, where it lies, without a packed copy of it.
#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace tbx::extern_kernels {

/// y[i][j] = bias[j] + sum over l of x[i][l] * matrix[j * k + l] for every row i and j in [begin, end). The
/// matrix is f32, f16 or bf16; `bias` may be null.
void multiply_rows(DType type, const void* matrix, int64_t k, int64_t begin, int64_t end, const float* bias,
                   std::span<const float* const> x, std::span<float* const> y);

} // namespace tbx::extern_kernels
