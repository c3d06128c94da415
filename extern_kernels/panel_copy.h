// A constant matrix cut into panels of columns.
#pragma once

#include <cstdint>
#include <functional>

#include "base/dtype.h"

namespace tbx::extern_kernels {

/// What is told of a run of a matrix's bytes that are copied: nobody reads them again here.
using Copied = std::function<void(const void* begin, int64_t bytes)>;

/// [k, n], whose element (i, j) is `data[i * row_stride + j * column_stride]`, as panels [panel, k, width] in
/// row-major order; columns beyond n are 0. Strip by strip, so that never more than one is in memory twice
/// where `copied` gives its pages back. Runs on all threads of the current arena. `T`: float, or the bits of
/// f16 and bf16.
template <class T>
void copy_panels(const T* data, T* panels, int64_t width, int64_t k, int64_t n, int64_t row_stride,
                 int64_t column_stride, const Copied& copied);

/// The same of f16 or bf16 elements as f32.
void copy_panels(DType from, const uint16_t* data, float* panels, int64_t width, int64_t k, int64_t n,
                 int64_t row_stride, int64_t column_stride, const Copied& copied);

/// `columns` columns of `k` elements, which lie side by side, `stride` apart: as rows, `row` apart.
void turn_columns(const float* from, int64_t stride, int64_t k, int64_t columns, float* to, int64_t row);

} // namespace tbx::extern_kernels
