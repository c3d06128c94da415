// merge_transposes: a Transpose of a Transpose is one Transpose; inverse ones cancel.
#include "fusion/passes/match.h"
#include "fusion/passes/passes.h"

namespace tbx::fusion {
namespace {

std::vector<int64_t> order_of(const Graph& g, const Node& node) {
  if (auto it = node.attributes.find("perm"); it != node.attributes.end())
    return std::get<std::vector<int64_t>>(it->second);
  std::vector<int64_t> reversed;
  const auto& shape = g.at(node.inputs[0]).type.shape;
  if (shape)
    for (size_t k = shape->size(); k-- > 0;) reversed.push_back(static_cast<int64_t>(k));
  return reversed;
}

} // namespace

int merge_transposes(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!node.domain.empty() || node.op_type != "Transpose") continue;
    Node* inner = e.producer(node.inputs[0], "Transpose");
    if (!inner) continue;
    std::vector<int64_t> outer = order_of(graph, node), first = order_of(graph, *inner), both;
    if (outer.empty() || outer.size() != first.size()) continue;
    for (int64_t k : outer) {
      if (k < 0 || k >= static_cast<int64_t>(first.size())) return count; // the lowering reports it
      both.push_back(first[k]);
    }
    e.become(node, "Transpose", node.opset, {inner->inputs[0]}, {{"perm", both}});
    ++count;
  }
  return count;
}

} // namespace tbx::fusion
