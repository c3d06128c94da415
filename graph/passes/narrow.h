// What the passes that make weights narrower share.
#pragma once

#include <optional>
#include <span>

#include "graph/graph.h"

namespace tbx::graph {

/// A float32 constant in a float of 16 bits, each element rounded to the nearest; nullopt where a finite one
/// would become infinite.
std::optional<Tensor> encoded(DType type, const Tensor& from);

/// The Transpose of a constant float32 matrix that makes `id`; nullptr: something else does. Producers are
/// places in `nodes`. Weights that something else reads as they are, embeddings for example, are turned in
/// the graph.
const Node* transpose_of_matrix(const Graph& graph, std::span<const Node> nodes, ValueId id);

} // namespace tbx::graph
