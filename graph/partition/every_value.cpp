#include "graph/partition/every_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "graph/partition/graph_part.h"

namespace tbx::graph {

void show_every_value(Graph& g) {
  std::vector<char> live = live_nodes(g), read(g.values.size(), 0);
  for (size_t i = 0; i < g.nodes.size(); ++i)
    if (live[i])
      for (ValueId v : values_read(g.nodes[i]))
        if (v >= 0) read[v] = 1;
  std::vector<char> given(g.values.size(), 0);
  std::set<std::string> names;
  std::vector<ValueId> outputs;
  for (ValueId v : g.outputs) {
    given[v] = 1;
    names.insert(g.at(v).name);
    if (g.at(v).producer < 0) outputs.push_back(v);
  }
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (ValueId v : g.nodes[i].outputs) {
      if (v < 0) continue;
      // A graph may name a value twice among its outputs.
      if (given[v])
        outputs.insert(outputs.end(), std::count(g.outputs.begin(), g.outputs.end(), v), v);
      else if (live[i] && read[v] && !g.at(v).constant && !g.at(v).name.empty() &&
               names.insert(g.at(v).name).second)
        outputs.push_back(v);
    }
  g.outputs = std::move(outputs);
}

std::map<std::string, std::string> producers_of_outputs(const Graph& g) {
  std::map<std::string, std::string> producers;
  for (ValueId v : g.outputs) {
    if (g.at(v).producer < 0) continue;
    const Node& node = g.nodes[g.at(v).producer];
    bool known = node.origin >= 0 && node.origin < static_cast<int>(g.origins.size());
    producers[g.at(v).name] =
        known ? g.origins[node.origin] : fmt::format("{} ({})", node.name, node.op_type);
  }
  return producers;
}

} // namespace tbx::graph
