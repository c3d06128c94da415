// Nodes that an operator of a user's library computes.
#pragma once

#include "lowering/op_registry.h"

namespace tbx::lowering {

/// Needs `ctx.node.custom`. Sizes that the library does not know are unbacked symbols.
std::vector<LoweredValue> lower_custom(OpContext& ctx);

} // namespace tbx::lowering
