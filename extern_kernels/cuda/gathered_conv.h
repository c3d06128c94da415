// Strict float32 convolutions with few results on a GPU as products: what each window covers is gathered into
// a row, and cuBLASLt splits the long sums among blocks. Plans of cuDNN without tensor cores do not, and
// leave most of the GPU idle.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "device/device.h"
#include "extern_kernels/cuda/epilogue.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

class GatheredConv {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  /// `load` makes a module of the text; empty: by NVRTC.
  GatheredConv(device::Device& device, const ConvProblem& p, Load load = {});

  /// One convolution as a product of gathered rows.
  struct Call {
    Gemm gemm; ///< a: the rows
    int64_t row_bytes = 0;
  };
  /// Empty where it is none: other types, TF32, groups, more than two spatial dimensions, channels that are
  /// not innermost, rows that take much memory. `weights`: strides of [outputs, inputs, ...].
  std::optional<Call> call(const TensorRef& x, std::span<const int64_t> weight_sizes,
                           std::span<const int64_t> weights, const TensorRef& y, const Epilogue& epilogue,
                           const TensorRef* residual) const;
  /// Queues what fills `rows`, [results without channels, elements of a window] floats.
  void gather(device::Stream& stream, const TensorRef& x, std::span<const int64_t> weight_sizes,
              const TensorRef& y, void* rows) const;

private:
  ConvProblem p_;
  Load load_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<device::Module> modules_[2]; ///< by whether elements are read in vectors
};

} // namespace tbx::extern_kernels::cuda
