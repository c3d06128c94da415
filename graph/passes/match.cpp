#include "graph/passes/match.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/float_formats.h"
#include "graph/node_attributes.h"

namespace tbx::graph {
Editor::Editor(Graph& g) : graph(g), uses_(g.values.size(), 0) {
  for (const Node& node : g.nodes) {
    for (ValueId id : node.inputs)
      if (id >= 0) ++uses_[id];
    for_each_capture(node, [&](Graph::Capture& c) { ++uses_[c.outer]; });
  }
  for (ValueId id : g.outputs) ++uses_[id];
}

Node* Editor::producer(ValueId id) {
  return id < 0 || graph.at(id).producer < 0 ? nullptr : &graph.nodes[graph.at(id).producer];
}

Node* Editor::producer(ValueId id, const char* op_type) {
  Node* node = producer(id);
  return node && node->domain.empty() && node->op_type == op_type && !places_operand(*node) ? node : nullptr;
}

std::optional<double> Editor::number(ValueId id) const {
  if (id < 0) return std::nullopt;
  const auto& t = graph.at(id).constant;
  if (!t || t->dtype == DType::string || is_complex(t->dtype) || t->numel() != 1) return std::nullopt;
  return element_as_double(*t, 0);
}

bool Editor::is_number(ValueId id, double wanted) const {
  const std::optional<double> v = number(id);
  if (!v || graph.at(id).constant->dtype != DType::f64) return v && about(*v, wanted);
  return std::fabs(*v - wanted) <= 1e-15 * std::fabs(wanted);
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

ValueId Editor::add_value(std::string name, ValueType type) {
  graph.values.push_back({std::move(name), std::move(type), -1, nullptr});
  uses_.push_back(0);
  return static_cast<ValueId>(graph.values.size()) - 1;
}

const Tensor* f32_constant(const Graph& graph, ValueId id) {
  if (id < 0) return nullptr;
  const auto& t = graph.at(id).constant;
  return t && t->dtype == DType::f32 ? t.get() : nullptr;
}

bool places_operand(const Node& node) {
  return node.opset < 7 && node.attributes.contains("broadcast") && node.attributes.contains("axis");
}

bool keeps_digits(const Tensor& before, const Tensor& after) {
  constexpr float kLeast = 0x1p-100f; // what is less beside it does not count
  auto largest = [](const Tensor& t) {
    float most = 0;
    for (float v : t.as<float>()) {
      if (!std::isfinite(v)) return v;
      most = std::max(most, std::fabs(v));
    }
    return most;
  };
  const float was = largest(before), is = largest(after);
  return std::isfinite(is) && (was < kLeast || is >= kLeast);
}

bool is_vector_over_last(const Graph& graph, ValueId id, ValueId x) {
  if (id < 0 || !graph.at(id).constant) return false;
  const Tensor& t = *graph.at(id).constant;
  const auto& shape = graph.at(x).type.shape;
  return t.dims.size() == 1 && shape && !shape->empty() && shape->back().is(t.dims[0]) &&
         t.dtype == graph.at(x).type.dtype;
}

namespace {

/// The most dimensions of a constant that is read on the way from `x` to `node`; as many as there may be
/// where the way is longer than that of any pattern.
size_t rank_of_constants(Editor& e, const Node& node, ValueId x) {
  constexpr size_t kLongest = 32;
  size_t rank = 0;
  std::vector<const Node*> way{&node};
  for (size_t i = 0; i < way.size(); ++i)
    for (ValueId id : way[i]->inputs) {
      if (id < 0 || id == x) continue;
      if (const auto& constant = e.graph.at(id).constant) {
        rank = std::max(rank, constant->dims.size());
        continue;
      }
      const Node* before = e.producer(id);
      if (!before || std::find(way.begin(), way.end(), before) != way.end()) continue;
      if (way.size() == kLongest) return std::numeric_limits<size_t>::max();
      way.push_back(before);
    }
  return rank;
}

} // namespace

bool keeps_rank(Editor& e, const Node& node, ValueId x) {
  const auto &result = e.graph.at(node.outputs[0]).type.shape, &shape = e.graph.at(x).type.shape;
  if (result && shape) return result->size() == shape->size();
  return rank_of_constants(e, node, x) <= (shape ? shape->size() : 0);
}

std::vector<int64_t> transpose_order(const Graph& graph, const Node& node) {
  std::vector<int64_t> order;
  if (const auto* given = find_attribute<std::vector<int64_t>>(node, "perm")) {
    order = *given;
  } else if (const auto& shape = graph.at(node.inputs[0]).type.shape) {
    for (size_t k = shape->size(); k-- > 0;) order.push_back(static_cast<int64_t>(k));
  }
  std::vector<bool> seen(order.size(), false);
  for (int64_t k : order) {
    if (k < 0 || k >= static_cast<int64_t>(order.size()) || seen[k]) return {};
    seen[k] = true;
  }
  return order;
}

bool is_identity_order(const std::vector<int64_t>& order) {
  for (size_t k = 0; k < order.size(); ++k)
    if (order[k] != static_cast<int64_t>(k)) return false;
  return true;
}

ValueId mean_of_last(Editor& e, ValueId id) {
  Node* mean = e.producer(id, "ReduceMean");
  if (!mean || attribute_or<int64_t>(*mean, "keepdims", 1) != 1) return -1;
  std::vector<int64_t> axes;
  if (const auto* given = find_attribute<std::vector<int64_t>>(*mean, "axes")) {
    axes = *given;
  } else if (mean->input(1) >= 0 && e.graph.at(mean->inputs[1]).constant) {
    axes = to_ints(*e.graph.at(mean->inputs[1]).constant);
  }
  if (axes.size() != 1) return -1;
  const auto& shape = e.graph.at(mean->inputs[0]).type.shape;
  bool last = axes[0] == -1 || (shape && axes[0] + 1 == static_cast<int64_t>(shape->size()));
  return last ? mean->inputs[0] : -1;
}

void replace_values(Graph& graph, std::vector<ValueId> stands_for) {
  for (ValueId& id : stands_for)
    while (id != stands_for[id]) id = stands_for[id];
  for (Node& node : graph.nodes) {
    for (ValueId& id : node.inputs)
      if (id >= 0) id = stands_for[id];
    for_each_capture(node, [&](Graph::Capture& c) { c.outer = stands_for[c.outer]; });
  }
}

bool about(double v, double wanted) {
  auto rounded = [wanted](DType half) {
    return decode_float(half, encode_float(half, static_cast<float>(wanted)));
  };
  if (v == rounded(DType::bf16) || v == rounded(DType::f16)) return true;
  return rounded(DType::bf16) != wanted && std::fabs(v - wanted) <= 1e-4 * std::fabs(wanted);
}

} // namespace tbx::graph
