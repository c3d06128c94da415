// eliminate_dead_code: nodes whose outputs nobody reads, or whose values are constants by now.
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {

int eliminate_dead_code(Graph& graph) {
  const std::vector<char> live = live_nodes(graph);
  std::vector<Node> kept;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (live[i]) kept.push_back(std::move(graph.nodes[i]));
  int removed = static_cast<int>(graph.nodes.size() - kept.size());
  graph.nodes = std::move(kept);
  set_producers(graph);
  return removed;
}

} // namespace tbx::graph
