#include "fusion/passes/match.h"

#include <algorithm>
#include <cmath>

namespace tbx::fusion {
namespace {

/// Captures of the subgraphs of a node.
template <class F> void for_each_capture(const Node& node, F&& fn) {
  auto visit = [&](const std::shared_ptr<Graph>& g) {
    if (g)
      for (Graph::Capture& c : g->captures) fn(c);
  };
  for (const auto& [name, attribute] : node.attributes) {
    if (const auto* g = std::get_if<std::shared_ptr<Graph>>(&attribute)) visit(*g);
    if (const auto* list = std::get_if<std::vector<std::shared_ptr<Graph>>>(&attribute))
      for (const auto& g : *list) visit(g);
  }
}

} // namespace

Editor::Editor(Graph& g) : graph(g), uses_(g.values.size(), 0) {
  for (const Node& node : g.nodes) {
    for (ValueId id : node.inputs)
      if (id >= 0) ++uses_[id];
    for_each_capture(node, [&](Graph::Capture& c) { ++uses_[c.outer]; });
  }
  for (ValueId id : g.outputs) ++uses_[id];
}

Node* Editor::producer(ValueId id, const char* op_type) {
  if (id < 0 || graph.at(id).producer < 0) return nullptr;
  Node& node = graph.nodes[graph.at(id).producer];
  return node.domain.empty() && node.op_type == op_type ? &node : nullptr;
}

std::optional<double> Editor::number(ValueId id) const {
  if (id < 0) return std::nullopt;
  const auto& t = graph.at(id).constant;
  if (!t || t->dtype == DType::string || is_complex(t->dtype) || t->numel() != 1) return std::nullopt;
  return element_as_double(*t, 0);
}

void Editor::become(Node& node, const char* op_type, int opset, std::vector<ValueId> inputs,
                    std::map<std::string, Attribute> attributes) {
  for (ValueId id : node.inputs)
    if (id >= 0) --uses_[id];
  for (ValueId id : inputs)
    if (id >= 0) ++uses_[id];
  node.op_type = op_type;
  node.domain.clear();
  node.opset = opset;
  node.inputs = std::move(inputs);
  node.attributes = std::move(attributes);
}

ValueId Editor::add_constant(Tensor tensor, std::string name) {
  Value v;
  v.name = std::move(name);
  v.type.kind = ValueType::tensor;
  v.type.dtype = tensor.dtype;
  v.type.shape = ir::SymInts(tensor.dims.begin(), tensor.dims.end());
  v.constant = std::make_shared<const Tensor>(std::move(tensor));
  graph.values.push_back(std::move(v));
  uses_.push_back(0);
  return static_cast<ValueId>(graph.values.size()) - 1;
}

bool about(std::optional<double> v, double wanted) {
  return v && std::fabs(*v - wanted) <= 1e-4 * std::fabs(wanted);
}

int64_t attribute_int(const Node& node, const char* name, int64_t otherwise) {
  auto it = node.attributes.find(name);
  if (it == node.attributes.end()) return otherwise;
  const auto* v = std::get_if<int64_t>(&it->second);
  return v ? *v : otherwise;
}

} // namespace tbx::fusion
