// merge_transposes: a Transpose of a Transpose is one Transpose; inverse ones cancel.
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {

int merge_transposes(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!node.domain.empty() || node.op_type != "Transpose") continue;
    Node* inner = e.producer(node.inputs[0], "Transpose");
    if (!inner) continue;
    std::vector<int64_t> outer = transpose_order(graph, node), first = transpose_order(graph, *inner), both;
    if (outer.empty() || outer.size() != first.size()) continue;
    for (int64_t k : outer) both.push_back(first[k]);
    e.become(node, "Transpose", node.opset, {inner->inputs[0]}, {{"perm", both}});
    ++count;
  }
  return count;
}

} // namespace tbx::graph
