// What the library does with sums of 8-bit integers itself, faster than by post-operations: a scale, a bias.
#pragma once

#include "extern_kernels/onednn/prepared.h"

namespace tbx::extern_kernels::onednn {

/// The first post-operations of a product of bytes, as far as they are a factor for all sums or for each
/// column of them, and then a number for each column that is added. The library's kernels multiply and add in
/// float32 and round each, as post-operations do: no bit of a result is another.
struct ScaledSums {
  const float* factor = nullptr; ///< of all sums, where the problem has it
  int scale = -1;                ///< else the input that has it
  bool is_of_columns = false;    ///< a factor for each column
  int bias = -1;                 ///< the input with what is added
  size_t post_ops = 0;           ///< how many of them this is
  bool has_scale() const { return factor || scale >= 0; }
};

/// `ops` outlive what is made of them. `columns` is the dimension of the result that they are.
ScaledSums scaled_sums(const std::vector<PostOp>& ops, std::span<const TensorRef> inputs,
                       const TensorRef& result, size_t columns);

/// The factors as an argument; `columns`: how many there are.
Argument scale_argument(const ScaledSums& sums, const dnnl::memory::dims& columns);

} // namespace tbx::extern_kernels::onednn
