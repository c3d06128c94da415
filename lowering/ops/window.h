// Windows sliding over spatial dimensions: attributes shared by convolutions and pooling.
#pragma once

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// Kernel, strides, dilations and padding of a window operator, one entry per spatial dimension.
struct Window {
  std::vector<int64_t> kernel, strides, dilations;
  SymInts pads_begin, pads_end; ///< symbolic only with auto_pad SAME_* over dynamic sizes
  bool ceil_mode = false;
  int spatial() const { return static_cast<int>(kernel.size()); }

  /// Output size along dimension `k` for an input of `size`.
  SymInt output_size(int k, SymInt size) const;
};

/// Reads kernel_shape (or takes `kernel`), strides, dilations, pads, auto_pad, ceil_mode. `spatial_sizes` are
/// the input's. ModelError for wrong counts, zero strides, negative values.
Window read_window(OpContext& ctx, std::span<const SymInt> spatial_sizes, std::vector<int64_t> kernel = {});

} // namespace tbx::lowering
