// What the passes that make weights narrower share.
#pragma once

#include <optional>
#include <span>

#include "graph/graph.h"
#include "graph/passes/graph_passes.h"

namespace tbx::graph {

/// A float32 constant in a float of 16 bits, which is told to `context.encoded`; nullopt where a finite
/// element would become infinite.
std::optional<Tensor> narrow_constant(DType type, const Tensor& from, const PassContext& context);

/// The Transpose of a constant float32 matrix that makes `id`; nullptr: something else does. Producers are
/// places in `nodes`. Weights that something else reads as they are, embeddings for example, are turned in
/// the graph.
const Node* transpose_of_matrix(const Graph& graph, std::span<const Node> nodes, ValueId id);

} // namespace tbx::graph
