// Products of many matrices, in the form for which the library has fast kernels.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "extern_kernels/kernel.h"
#include "extern_kernels/onednn/common.h"

namespace tbx::extern_kernels::onednn {

/// Rows of one matrix have rows of others between them, as those of [batch, row, head, column] that is read
/// as [batch, head, row, column].
bool interleaves_batches(const TensorRef& t);

/// The batch dimensions of a product, those that all operands step through as through one made one. Where
/// matrices take turns and one is left, a dimension of 1 stands before it: the fast kernels of the library
/// know [batch, head, row, column] in memory as [batch, row, head, column], and neither three nor five of
/// them.
class Batches {
public:
  /// Operands of another rank than the result's stay as they are.
  Batches(std::span<const TensorRef> inputs, const TensorRef& result);

  dnnl::memory::desc describe(const TensorRef& t) const;

private:
  size_t rank_;
  bool interleaved_;
  std::vector<std::pair<size_t, size_t>> joined_; ///< [first, end) of each dimension that is left
};

} // namespace tbx::extern_kernels::onednn
