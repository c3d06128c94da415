// Gradient (ai.onnx.preview.training): differentiates a graph at the level of ONNX nodes.
#pragma once

#include "graph/graph.h"

namespace tbx::graph {

/// Replaces every Gradient node of `graph` by the nodes that compute it, in reverse mode: each forward
/// operator has a rule (graph/differentiate/gradient_rules.h) that emits nodes; one without a rule gives way
/// to the body that ONNX defines for it. Gradients of gradients come from doing so in order of the nodes.
/// UnsupportedError for an operator with neither, ModelError for names that are not there.
void expand_gradients(Graph& graph);

} // namespace tbx::graph
