// Convolutions of one pixel from bytes to bytes in tiles of our own, which do what comes behind the sums
// faster than the library's kernels.
#pragma once

#include "extern_kernels/bytes/tile_product.h"
#include "extern_kernels/onednn/scaled_sums.h"

namespace tbx::extern_kernels::onednn {

class TileConv : public ExternKernel {
public:
  /// Whether it computes the convolution of operands of these sizes that lie so. `sums`: of its operations.
  static bool fits(const ConvProblem& p, const ScaledSums& sums, std::span<const TensorRef> in,
                   const TensorRef& out);
  /// How the weights are to lie, of these sizes.
  static dnnl::memory::desc layout(std::span<const int64_t> sizes);

  TileConv(const ConvProblem& p, const ScaledSums& sums, dnnl::memory weights);
  std::string description() const override { return "own tiles of bytes"; }
  void run(const RunArgs& args) const override;

private:
  ScaledSums sums_;
  bytes::TileWork work_;
  std::vector<int64_t> strides_;
  dnnl::memory weights_;
};

} // namespace tbx::extern_kernels::onednn
