// Products with a bias and the exact GELU, x * (1 + erf(x / sqrt(2))) / 2, in float16 and bfloat16. cuDNN
// compiles one kernel for all of it. cuBLASLt has the approximation by tanh alone, so its way is a product,
// and a kernel of ours that changes the result in place. The faster one is taken. Few rows have a kernel of
// ours instead (few_rows_product.h).
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "extern_kernels/cuda/dnn_plan.h"
#include "extern_kernels/cuda/epilogue.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels::cuda {

/// The kernel that changes rows of halves in place.
class GeluPass {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  /// `load` makes a module of the text; empty: by NVRTC.
  explicit GeluPass(device::Device& device, Load load = {});
  /// Compiles what run() needs for rows of vectors, ahead of it.
  void prepare(DType half) const { kernel_for(half, true); }
  /// `c`: [rows, columns], a step of `c_step` elements from one row to the next.
  void run(device::Stream& stream, DType half, void* c, int64_t rows, int64_t columns, int64_t c_step) const;

private:
  device::Kernel kernel_for(DType half, bool vectors) const;

  device::Device& device_;
  Load load_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<DType, bool>, std::shared_ptr<device::Module>>
      modules_; ///< and whether by vectors
};

class GeluProduct {
public:
  explicit GeluProduct(device::Device& device);
  /// Enough for both ways. Plans of cuDNN are made here, ahead of a run.
  int64_t workspace_bytes(const Gemm& gemm) const;
  /// Queues the product. Where it cannot, why, and nothing is queued.
  std::string run(device::Stream& stream, const Gemm& gemm, const GemmAddresses& at, float alpha,
                  void* workspace, size_t workspace_bytes) const;
  std::string description(const Gemm& gemm, const GemmAddresses& at) const;

private:
  dnn::Found plans_of(const Gemm& gemm, int bias_align) const;

  std::shared_ptr<const device::cuda::ContextOwner> context_;
  GeluPass pass_;
};

/// Why a product does not take the GELU behind it; empty: it does. Few rows gain from a launch less. Of many
/// rows a generated kernel behind the product is as fast, and may do more than GELU.
std::string refuse_gelu(std::span<const OperandInfo> inputs, const OperandInfo& result,
                        const Epilogue& epilogue);

} // namespace tbx::extern_kernels::cuda
