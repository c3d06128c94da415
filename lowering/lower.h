// Lower: Graph -> Program of TensorBox operations. Third stage; shape computations dissolve into SymInts here.
#pragma once

#include "importer/graph.h"
#include "ir/tensor_box.h"

namespace tbx::lowering {

struct LowerOptions {
  bool allow_expansion = true;  ///< operators without a lowering use their ONNX function body
};

/// Needs a verified graph. Guarantees a verified program whose outputs are realized. Errors carry the node.
ir::Program lower(const Graph& graph, const LowerOptions& options = {});

/// Evaluates a graph whose inputs are all constant (constant folding). Gives the outputs, or throws.
std::vector<Tensor> evaluate_constant_node(const Graph& graph, const Node& node);

}  // namespace tbx::lowering
