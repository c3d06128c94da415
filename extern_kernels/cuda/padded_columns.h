// Constant right-hand sides with a number of columns that the library's fast kernels do not take: padded with
// zeros to a multiple of 8, each column dense.
#pragma once

#include <memory>
#include <mutex>

#include "device/device.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

class PaddedColumns {
public:
  /// `b`: [1..., terms, columns]. Nothing is held where it gains nothing.
  PaddedColumns(device::Device& device, const OperandInfo& b);
  /// Products of so many rows gain: the padded result has to be copied.
  bool gains(int64_t rows) const { return constant_ != nullptr && rows >= 8; }
  int64_t terms() const { return terms_; }
  int64_t columns() const { return columns_; }
  int64_t padded() const { return (columns_ + 7) / 8 * 8; }
  /// [padded, terms] in device memory, uploaded by the first call.
  const void* weights() const;
  int64_t bytes() const;
  /// Takes the columns that count out of `rows` padded rows.
  void copy(device::Stream& stream, const void* from, void* to, int64_t rows, int64_t to_step) const;

private:
  device::Device& device_;
  std::shared_ptr<const Tensor> constant_;
  DType dtype_;
  int64_t terms_ = 0, columns_ = 0, term_stride_ = 0, column_stride_ = 0;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<device::Memory> memory_;
  mutable std::unique_ptr<LoopKernel> rows_;
};

} // namespace tbx::extern_kernels::cuda
