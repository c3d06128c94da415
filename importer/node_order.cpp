#include "importer/node_order.h"

#include <fmt/format.h>

#include <functional>
#include <queue>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/names.h"

namespace tbx::importer {
namespace {

/// Calls fn with the names that a node uses, those that its subgraphs take from outside included. The
/// recursion is as deep as the nesting that parse_model let through.
void for_each_used_name(const onnx::NodeProto& node, const std::function<void(const std::string&)>& fn);

void for_each_free_name(const onnx::GraphProto& graph, const std::function<void(const std::string&)>& fn) {
  std::unordered_set<std::string> own;
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& tensor : graph.initializer()) own.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) own.insert(tensor.values().name());
  for (const auto& node : graph.node()) own.insert(node.output().begin(), node.output().end());
  auto free_only = [&](const std::string& name) {
    if (!own.contains(name)) fn(name);
  };
  for (const auto& node : graph.node()) for_each_used_name(node, free_only);
  for (const auto& output : graph.output()) free_only(output.name());
}

void for_each_used_name(const onnx::NodeProto& node, const std::function<void(const std::string&)>& fn) {
  for (const std::string& name : node.input()) fn(name);
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) for_each_free_name(attribute.g(), fn);
    for (const auto& graph : attribute.graphs()) for_each_free_name(graph, fn);
  }
}

} // namespace

std::vector<int> topological_order(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  std::unordered_map<std::string_view, int> maker;
  for (int i = 0; i < nodes.size(); ++i)
    for (const std::string& name : nodes[i].output())
      if (!name.empty()) maker.emplace(name, i);

  std::vector<std::vector<int>> users(nodes.size());
  std::vector<int> waits_for(nodes.size());
  for (int i = 0; i < nodes.size(); ++i)
    for_each_used_name(nodes[i], [&](const std::string& name) {
      auto it = maker.find(name);
      if (it == maker.end()) return;
      users[it->second].push_back(i);
      ++waits_for[i];
    });

  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < nodes.size(); ++i)
    if (waits_for[i] == 0) ready.push(i);
  std::vector<int> order;
  order.reserve(nodes.size());
  while (!ready.empty()) {
    int i = ready.top();
    ready.pop();
    order.push_back(i);
    for (int user : users[i])
      if (--waits_for[user] == 0) ready.push(user);
  }
  if (order.size() == static_cast<size_t>(nodes.size())) return order;

  // Some node waits for another that waits too, and so on: following any of them back ends in the circle.
  std::vector<int> waits_on(nodes.size(), -1);
  int at = -1;
  for (int i = 0; i < nodes.size(); ++i)
    for (int user : users[i])
      if (waits_for[i] > 0 && waits_for[user] > 0) waits_on[user] = at = i;
  for (int steps = 0; steps < nodes.size(); ++steps) at = waits_on[at];
  auto label = [&](int i) {
    const auto& node = nodes[i];
    return shown(node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name());
  };
  std::string circle = label(at);
  int next = waits_on[at];
  for (int i = 1; next != at && i < 8; next = waits_on[next], ++i)
    circle = fmt::format("{} -> {}", label(next), circle);
  circle = fmt::format("{} -> {}", next == at ? label(at) : "...", circle);
  throw_model_error("nodes need each other's outputs in a circle: {}", circle);
}

} // namespace tbx::importer
