// One row times a constant matrix by a kernel of ours: steps of decoders, which wait for the matrix. It has a
// copy of the matrix whose columns are dense, unless they are. Each block may norm the row for itself, which
// is less than one more kernel is, and have two columns for a result, of which one gates the other.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/device.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

/// What comes before and behind the product besides what a Gemm says. The product's n are columns of the
/// matrix.
struct RowEnds {
  RowWork work;
  DType x = DType::undefined;                               ///< of the row in memory
  DType scale = DType::undefined, shift = DType::undefined; ///< undefined: none
  const void *scale_data = nullptr, *shift_data = nullptr;
};

class RowProduct {
public:
  static constexpr int64_t kMostStaged = 8192; ///< terms of a row that a block keeps
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  /// `load` makes a module of the text; empty: by NVRTC.
  RowProduct(device::Device& device, const OperandInfo& a, const OperandInfo& b, Load load = {});

  /// The kernel computes the product: it is known to have one row and a constant matrix.
  bool suits(const Gemm& gemm, const GemmAddresses& at) const;
  /// Makes the copy of the matrix; to be called before a run that is recorded.
  void prepare(const Gemm& gemm) const;
  /// Compiles what run() without ends needs, where it suits.
  void compile(const Gemm& gemm) const;
  void run(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at, float alpha) const;
  /// The same of a row of at most kMostStaged elements, of any alignment, without a residual.
  void run(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at, const RowEnds& ends) const;
  int64_t bytes() const; ///< of the copy

private:
  struct Work;
  Work work_of(const Gemm& gemm, const RowEnds& ends, bool staged) const;
  RowEnds ends_of(const Gemm& gemm) const;
  void launch(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at, float alpha,
              const RowEnds& ends, bool staged) const;
  const void* weights() const;
  bool is_as_read(const Gemm& gemm) const;

  device::Device& device_;
  Load load_;
  DType type_;
  int64_t terms_ = 0, columns_ = 0, term_stride_ = 0, column_stride_ = 0;
  std::shared_ptr<const Tensor> constant_; ///< nullptr: the kernel does not suit
  mutable std::mutex mutex_;
  mutable std::unique_ptr<device::Memory> memory_;
  mutable std::map<std::string, std::shared_ptr<device::Module>> modules_; ///< by text
};

} // namespace tbx::extern_kernels::cuda
