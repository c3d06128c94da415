// fuse_swish: products of a value with its sigmoid, so that library kernels can take them as post-operations.
#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {

int fuse_swish(Graph& graph) {
  Editor e(graph);
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!node.domain.empty() || node.op_type != "Mul" || node.opset < 7 || node.inputs.size() != 2) continue;
    for (int k = 0; k < 2; ++k) {
      ValueId x = node.inputs[k], f = node.inputs[1 - k];
      if (Node* s = e.producer(f, "Sigmoid"); s && s->inputs[0] == x) {
        e.become(node, "Swish", 24, {x}, {{"alpha", 1.0f}});
        ++count;
        break;
      }
      Node* h = e.producer(f, "HardSigmoid");
      if (!h || h->inputs[0] != x) continue;
      // The attribute has the digits of f32.
      if (graph.at(x).type.dtype == DType::f64 || !about(attribute_or<float>(*h, "alpha", 0.2f), 1.0 / 6) ||
          !about(attribute_or<float>(*h, "beta", 0.5f), 0.5))
        continue;
      e.become(node, "HardSwish", 14, {x});
      ++count;
      break;
    }
  }
  return count;
}

} // namespace tbx::graph
