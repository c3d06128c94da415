// eliminate_no_ops: operators that hand their input through.
#include <algorithm>

#include "fusion/passes/match.h"
#include "fusion/passes/passes.h"

namespace tbx::fusion {
namespace {

bool is_identity_order(const std::vector<int64_t>& perm) {
  for (size_t k = 0; k < perm.size(); ++k)
    if (perm[k] != static_cast<int64_t>(k)) return false;
  return true;
}

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
    auto it = node.attributes.find("perm");
    return it != node.attributes.end() && is_identity_order(std::get<std::vector<int64_t>>(it->second));
  }
  if (node.op_type == "Cast") {
    return static_cast<DType>(attribute_int(node, "to", 0)) == in.dtype;
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
  if (count == 0) return 0;
  // Subgraphs see the new values too; graph outputs keep their nodes, so that names and buffers stay their
  // own.
  for (Node& node : graph.nodes)
    for (auto& [name, attribute] : node.attributes) {
      auto rename = [&](const std::shared_ptr<Graph>& g) {
        if (g)
          for (Graph::Capture& c : g->captures) c.outer = stands_for[c.outer];
      };
      if (auto* g = std::get_if<std::shared_ptr<Graph>>(&attribute)) rename(*g);
      if (auto* list = std::get_if<std::vector<std::shared_ptr<Graph>>>(&attribute))
        for (auto& g : *list) rename(g);
    }
  return count;
}

} // namespace tbx::fusion
