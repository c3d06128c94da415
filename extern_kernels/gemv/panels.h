// A constant matrix cut into panels of columns, and its product with a vector: reads the matrix once, in
// order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/dtype.h"
#include "extern_kernels/panel_copy.h"

namespace tbx::extern_kernels::gemv {

/// Columns of a panel: four 64-byte vectors, enough sums in flight to hide the latency of additions.
constexpr int kPanel = 64;

/// f32, f16 or bf16 [k, n] as ceil(n / kPanel) panels of the same type, each [k, kPanel] in row-major order;
/// columns beyond n are 0.
class Panels {
public:
  /// Copies the matrix as copy_panels does.
  Panels(const void* data, DType type, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
         const Copied& copied = {});

  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  int64_t count() const { return (n_ + kPanel - 1) / kPanel; }
  int64_t bytes() const { return count() * k_ * kPanel * size_of(type_); }

  /// sums[j] = sum over i of x[i] * matrix[i, panel * kPanel + j] in f32; x has k elements.
  void multiply(int64_t panel, const float* x, std::span<float, kPanel> sums) const;

private:
  int64_t k_, n_;
  DType type_;
  std::shared_ptr<void> memory_;
  std::byte* data_;
  void (*multiply_)(const std::byte* panel, const float* x, int64_t k, float* sums);
};

} // namespace tbx::extern_kernels::gemv
