// Reading images at positions that data decides: with the channels innermost, one position serves whole
// vectors.
#pragma once

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// x [N, C, spatial...] copied as [N, spatial..., C].
TensorBox with_channels_last(OpContext& ctx, const TensorBox& x);

/// Whether the copy costs less than `reads` reads per channel at single places.
bool channels_last_pays(const TensorBox& x, SymInt reads);

/// [N, spatial..., C] shown as [N, C, spatial...].
TensorBox with_channels_second(OpContext& ctx, const TensorBox& x);

/// An i64 expression as an index of a dimension: what is outside is moved to the border, so that reads need
/// no mask, which would also be one on the loads inside of the index.
SymInt clamped_index(OpContext& ctx, Expr i, SymInt size);

} // namespace tbx::lowering
