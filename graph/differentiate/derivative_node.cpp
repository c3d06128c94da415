#include "graph/differentiate/derivative_node.h"

#include <algorithm>

#include "base/error.h"
#include "graph/node_attributes.h"

namespace tbx::graph {

namespace {

constexpr const char* kDifferentiated = "differentiated";

template <class T> T attribute(const Node& node, const char* name) {
  const T* value = find_attribute<T>(node, name);
  TBX_MODEL(value != nullptr, "attribute '{}' is missing", name);
  return *value;
}

} // namespace

DerivativeNode DerivativeNode::read(const Node& node) {
  DerivativeNode d;
  d.forward.name = node.name;
  d.forward.op_type = attribute<std::string>(node, "operator");
  d.forward.domain = attribute<std::string>(node, "domain");
  d.forward.opset = static_cast<int>(attribute<int64_t>(node, "opset"));
  d.forward.origin = node.origin;
  const auto outputs = attribute<std::vector<int64_t>>(node, "outputs");
  TBX_MODEL(outputs.size() <= node.inputs.size(), "{} inputs for {} outputs", node.inputs.size(),
            outputs.size());
  d.num_inputs = static_cast<int>(node.inputs.size() - outputs.size());
  TBX_MODEL(node.outputs.size() <= static_cast<size_t>(d.num_inputs), "{} outputs for {} inputs",
            node.outputs.size(), d.num_inputs);
  d.forward.inputs.assign(node.inputs.begin(), node.inputs.begin() + d.num_inputs);
  for (int64_t there : outputs) d.forward.outputs.push_back(there != 0 ? 0 : -1);
  for (const auto& [name, value] : node.attributes)
    if (name.starts_with('\'')) d.forward.attributes.emplace(name.substr(1), value);
  d.differentiated = node.attributes.contains(kDifferentiated);
  return d;
}

void DerivativeNode::set_differentiated(Node& node) {
  if (node.domain == "tensorbox" && node.op_type == "Derivative")
    node.attributes[kDifferentiated] = int64_t{1};
}

Node DerivativeNode::make(const Node& forward, const std::vector<ValueId>& gradients) {
  Node node;
  node.name = forward.name;
  node.op_type = "Derivative";
  node.domain = "tensorbox";
  node.opset = 1;
  node.inputs = forward.inputs;
  node.inputs.insert(node.inputs.end(), gradients.begin(), gradients.end());
  std::vector<int64_t> outputs;
  for (ValueId v : forward.outputs) outputs.push_back(v >= 0);
  node.attributes = {{"operator", forward.op_type},
                     {"domain", forward.domain},
                     {"opset", int64_t{forward.opset}},
                     {"outputs", outputs}};
  for (const auto& [name, value] : forward.attributes) node.attributes.emplace("'" + name, value);
  return node;
}

} // namespace tbx::graph
