// Evaluation of one node on constant inputs.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace tbx::lowering {

/// One tensor per output of the node (undefined where it is left out). nullopt: random, has a body graph, or
/// makes more than `max_elements` in one output. Throws what lowering and evaluation throw.
std::optional<std::vector<Tensor>>
evaluate_node(const Node& node, std::span<const std::shared_ptr<const Tensor>> inputs, int64_t max_elements);

} // namespace tbx::lowering
