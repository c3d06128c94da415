// Concatenations that only show elements of one box in another order.
#pragma once

#include <optional>

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// Parts of one storage, side by side along `axis`, as one view of it: neighbours that a Split has cut, or
/// two parts that have changed places (a roll). nullopt where they are neither, or the view would be slower
/// than a copy.
std::optional<TensorBox> joined_view(OpContext& ctx, std::vector<TensorBox> parts, int axis);

} // namespace tbx::lowering
