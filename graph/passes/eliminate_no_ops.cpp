// eliminate_no_ops: operators that hand their input through.
#include <algorithm>

#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

bool hands_through(const Editor& e, const Node& node) {
  if (!node.domain.empty() || node.inputs.empty() || node.inputs[0] < 0) return false;
  const ValueType& in = e.graph.at(node.inputs[0]).type;
  if (in.kind != ValueType::tensor) return false;
  if (node.op_type == "Identity") return true;
  if (node.op_type == "Dropout") {
    // Inference: opset 7 and later without training_mode; the mask must not be asked for.
    bool mask_used = node.outputs.size() > 1 && node.outputs[1] >= 0 && e.uses(node.outputs[1]) > 0;
    return node.opset >= 7 && node.input(2) < 0 && !mask_used;
  }
  if (node.op_type == "Transpose") {
    std::vector<int64_t> order = transpose_order(e.graph, node);
    return !order.empty() && is_identity_order(order);
  }
  if (node.op_type == "Cast") {
    return static_cast<DType>(attribute_or<int64_t>(node, "to", 0)) == in.dtype;
  }
  return false;
}

} // namespace

int eliminate_no_ops(Graph& graph) {
  Editor e(graph);
  int count = 0;
  // One renaming for the whole graph: replacing value by value would be quadratic.
  std::vector<ValueId> stands_for(graph.values.size());
  for (size_t v = 0; v < stands_for.size(); ++v) stands_for[v] = static_cast<ValueId>(v);
  for (Node& node : graph.nodes) {
    for (ValueId& id : node.inputs)
      if (id >= 0) id = stands_for[id];
    if (!hands_through(e, node)) continue;
    stands_for[node.outputs[0]] = node.inputs[0];
    // One that only names a graph output stays, and is no rewrite.
    auto named = std::count(graph.outputs.begin(), graph.outputs.end(), node.outputs[0]);
    count += e.uses(node.outputs[0]) > named;
  }
  // Subgraphs see the new values too; graph outputs keep their nodes, so that names and buffers stay their
  // own.
  if (count > 0) replace_values(graph, std::move(stands_for));
  return count;
}

} // namespace tbx::graph
