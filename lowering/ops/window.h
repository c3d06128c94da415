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

/// The positions a window covers: full input indices over var (output) and rvar (inside the window), and
/// whether the position lies inside the input.
struct WindowAccess {
  SymInts sizes, reduced, at;
  Expr inside = nullptr; ///< nullptr: always
};

/// Of `x` of shape [N, C, spatial...]. ModelError when the window is larger than the padded input.
WindowAccess window_access(OpContext& ctx, const TensorBox& x, const Window& w);

/// `x` at the window position, `outside` beyond the border.
Expr window_read(OpContext& ctx, const TensorBox& x, const WindowAccess& a, Expr outside);

/// How many window positions along dimension `k` lie on the input (on its padding too when `include_pad`),
/// i64, for the output position var(2 + k).
Expr window_coverage(OpContext& ctx, const Window& w, int k, SymInt size, bool include_pad);

/// [N, spatial..., C] seen as [N, C, spatial...], and back.
TensorBox channels_first(OpContext& ctx, const TensorBox& x);
TensorBox channels_last(OpContext& ctx, const TensorBox& x);

} // namespace tbx::lowering
