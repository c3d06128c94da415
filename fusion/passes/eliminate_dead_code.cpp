// eliminate_dead_code: nodes whose outputs nobody reads, or whose values are constants by now.
#include "fusion/passes/match.h"
#include "fusion/passes/passes.h"

namespace tbx::fusion {

int eliminate_dead_code(Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (ValueId id : graph.outputs) needed[id] = true;
  std::vector<bool> keep(graph.nodes.size(), false);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    for (ValueId id : node.outputs) keep[i] = keep[i] || (id >= 0 && needed[id] && !graph.at(id).constant);
    if (!keep[i]) continue;
    for (ValueId id : node.inputs)
      if (id >= 0) needed[id] = true;
    for_each_capture(node, [&](const Graph::Capture& c) { needed[c.outer] = true; });
  }
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (keep[i]) kept.push_back(std::move(graph.nodes[i]));
  int removed = static_cast<int>(graph.nodes.size() - kept.size());
  graph.nodes = std::move(kept);
  set_producers(graph);
  return removed;
}

} // namespace tbx::fusion
