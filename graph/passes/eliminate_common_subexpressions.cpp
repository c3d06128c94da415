// eliminate_common_subexpressions: equal operators over equal inputs are computed once.
#include <fmt/format.h>

#include <unordered_map>

#include "extern_kernels/custom_operator.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

/// Text that is equal exactly for nodes that compute the same; empty when the node must stay its own.
std::string key_of(const Node& node, const std::vector<ValueId>& stands_for) {
  if (lowering::has(lowering::Trait::random, node) || (node.custom && !node.custom->is_function())) return {};
  std::string key = fmt::format("{}|{}|{}|{}", node.domain, node.op_type, node.opset, node.outputs.size());
  for (ValueId id : node.inputs) key += fmt::format(",{}", id < 0 ? -1 : stands_for[id]);
  for (ValueId id : node.outputs) key += id < 0 ? "-" : "+";
  for (const auto& [name, attribute] : node.attributes) {
    key += "|" + name + "=";
    if (const auto* i = std::get_if<int64_t>(&attribute))
      key += fmt::format("{}", *i);
    else if (const auto* f = std::get_if<float>(&attribute))
      key += fmt::format("{:a}f", *f);
    else if (const auto* s = std::get_if<std::string>(&attribute))
      key += fmt::format("{}:{}", s->size(), *s);
    else if (const auto* is = std::get_if<std::vector<int64_t>>(&attribute))
      key += fmt::format("{}", fmt::join(*is, ","));
    else if (const auto* fs = std::get_if<std::vector<float>>(&attribute))
      key += fmt::format("{:a}", fmt::join(*fs, ","));
    else
      return {}; // tensors and bodies: not worth comparing
  }
  return key;
}

} // namespace

int eliminate_common_subexpressions(Graph& graph) {
  std::vector<ValueId> stands_for(graph.values.size());
  for (size_t v = 0; v < stands_for.size(); ++v) stands_for[v] = static_cast<ValueId>(v);
  std::unordered_map<std::string, const Node*> seen;
  int count = 0;
  for (Node& node : graph.nodes) {
    for (ValueId& id : node.inputs)
      if (id >= 0) id = stands_for[id];
    std::string key = key_of(node, stands_for);
    if (key.empty()) continue;
    auto [it, fresh] = seen.try_emplace(std::move(key), &node);
    if (fresh) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] >= 0) stands_for[node.outputs[i]] = it->second->outputs[i];
    ++count;
  }
  if (count > 0) replace_values(graph, std::move(stands_for));
  return count;
}

} // namespace tbx::graph
