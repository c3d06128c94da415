#include "graph/passes/narrow.h"

#include "base/encoded.h"
#include "graph/passes/match.h"

namespace tbx::graph {

std::optional<Tensor> narrow_constant(DType type, const Tensor& from, const PassContext& context) {
  std::optional<Tensor> to = encoded(type, from);
  if (to && context.encoded) context.encoded(from, *to);
  return to;
}

const Node* transpose_of_matrix(const Graph& graph, std::span<const Node> nodes, ValueId id) {
  const int producer = graph.at(id).producer;
  if (producer < 0) return nullptr;
  const Node& turn = nodes[producer];
  if (!turn.domain.empty() || turn.op_type != "Transpose") return nullptr;
  const Tensor* matrix = f32_constant(graph, turn.input(0));
  return matrix && matrix->dims.size() == 2 ? &turn : nullptr;
}

} // namespace tbx::graph
