// Known values: integer shape computations carried out on SymInts while lowering, so that nothing of them
// runs later.
#pragma once

#include <optional>
#include <vector>

#include "lowering/op_registry.h"

namespace tbx::lowering {

/// The outputs of a node whose inputs are known (constants, Shape and what is computed from them), where they
/// follow for every value of the symbols; nullopt when the node must run. Needs inputs of at most 4096
/// elements.
std::optional<std::vector<LoweredValue>> known_results(const OpContext& node);

} // namespace tbx::lowering
