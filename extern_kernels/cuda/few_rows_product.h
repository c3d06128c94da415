// Few rows times a matrix in float16 or bfloat16 by a kernel of ours: the terms of a tile are shared by a
// cluster of blocks, which join their sums in their own memory. Libraries join those of long rows in a kernel
// behind the product.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "device/device.h"
#include "extern_kernels/cuda/gemm.h"

namespace tbx::extern_kernels::cuda {

class FewRowsProduct {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  /// `load` makes a module of the text; empty: by NVRTC. `multiprocessors`: work is spread over so many; 0:
  /// as many as the device has.
  explicit FewRowsProduct(device::Device& device, Load load = {}, int multiprocessors = 0);

  /// The kernel computes the product.
  bool takes(const Gemm& gemm, const GemmAddresses& at) const;
  /// It takes it, and may be faster than a library: the device has clusters, which the terms are enough for.
  bool suits(const Gemm& gemm, const GemmAddresses& at) const;
  /// Compiles what run() needs, ahead of it.
  void prepare(const Gemm& gemm) const { kernel_for(gemm); }
  void run(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at, float alpha) const;

private:
  int blocks_of_cluster(const Gemm& gemm) const;
  device::Kernel kernel_for(const Gemm& gemm) const;

  device::Device& device_;
  Load load_;
  bool has_clusters_;
  int multiprocessors_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::shared_ptr<device::Module>> modules_; ///< by text
};

} // namespace tbx::extern_kernels::cuda
