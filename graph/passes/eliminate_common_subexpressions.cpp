// eliminate_common_subexpressions: equal operators over equal inputs are computed once.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>
#include <unordered_map>

#include "extern_kernels/custom_operator.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

/// Forests have hundreds of thousands of elements in their attributes: of lists a key has the hash.
template <class T> size_t hash_of(const std::vector<T>& list) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)});
}

/// Text that is equal for all nodes that compute the same, and hardly for others; empty when the node must
/// stay its own.
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
      key += fmt::format("{}#{}", is->size(), hash_of(*is));
    else if (const auto* fs = std::get_if<std::vector<float>>(&attribute))
      key += fmt::format("{}#{}f", fs->size(), hash_of(*fs));
    else
      return {}; // tensors and bodies: not worth comparing
  }
  return key;
}

template <class T> bool same_list(const Attribute& a, const Attribute& b) {
  const auto *x = std::get_if<std::vector<T>>(&a), *y = std::get_if<std::vector<T>>(&b);
  if (!x || !y) return !x && !y;
  return x->size() == y->size() &&
         (x->empty() || std::memcmp(x->data(), y->data(), x->size() * sizeof(T)) == 0);
}

/// Of nodes with the same key, which stands for all but lists.
bool same_lists(const Node& a, const Node& b) {
  auto same = [](const auto& x, const auto& y) {
    return same_list<int64_t>(x.second, y.second) && same_list<float>(x.second, y.second);
  };
  return std::equal(a.attributes.begin(), a.attributes.end(), b.attributes.begin(), b.attributes.end(), same);
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
    if (fresh || !same_lists(node, *it->second)) continue;
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] >= 0) stands_for[node.outputs[i]] = it->second->outputs[i];
    ++count;
  }
  if (count > 0) replace_values(graph, std::move(stands_for));
  return count;
}

} // namespace tbx::graph
