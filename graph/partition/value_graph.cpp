#include "graph/partition/value_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "graph/function_body.h"
#include "graph/node_attributes.h"
#include "graph/partition/graph_part.h"
#include "lowering/op_registry.h"
#include "runtime/generation/generation.h"

namespace tbx::graph {

bool is_numeric(const ValueType& type) {
  return type.kind == ValueType::unknown || (type.kind == ValueType::tensor && type.dtype != DType::string);
}

namespace {

bool is_string(const Graph& g, ValueId v) {
  return v >= 0 && g.at(v).type.kind == ValueType::tensor && g.at(v).type.dtype == DType::string;
}

/// Strings that come from nowhere but constants are strings, too.
bool reads_strings(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [&](const Node& n) {
    bool reads = std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return is_string(g, v); });
    for_each_body(n, [&](const Graph& body) { reads = reads || reads_strings(body); });
    return reads;
  });
}

} // namespace

bool needs_values(const Graph& g) {
  auto special = [&](ValueId v) { return v >= 0 && !is_numeric(g.at(v).type); };
  for (ValueId v : g.inputs)
    if (v >= 0 && (special(v) || !g.at(v).type.shape)) return true;
  // Sequences and optionals between nodes may dissolve while compiling; strings that a node makes do not, nor
  // does a search for tokens.
  for (const Node& n : g.nodes)
    if (runtime::find_generation_op(n.domain, n.op_type) ||
        std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return is_string(g, v); }))
      return true;
  return reads_strings(g) || std::any_of(g.outputs.begin(), g.outputs.end(), special);
}

bool may_need_values(const Graph& g) {
  for (const Node& n : g.nodes) {
    bool has_body = false;
    for_each_body(n, [&](const Graph&) { has_body = true; });
    if (has_body) return true;
    for (const auto& values : {n.inputs, n.outputs}) // of inputs, constants are news
      for (ValueId v : values)
        if (v >= 0 && !is_numeric(g.at(v).type)) return true;
  }
  return needs_values(g);
}

namespace {

/// What the numbers that stand for strings must say.
enum class Numbers : int64_t {
  position, ///< which element it is
  order,    ///< equal and less
  truth,    ///< whether it is empty
  none,     ///< the operator computes with elements
};

Numbers numbers_for(const Graph& g, const Node& n) {
  using lowering::has, lowering::Trait;
  if (has(Trait::compares, n)) return Numbers::order;
  if (has(Trait::tests, n)) return Numbers::truth;
  if (has(Trait::random, n) && has(Trait::reads_shape, n))
    return is_string(g, n.outputs[0]) ? Numbers::none : Numbers::position;
  return lowering::Registry::instance().moves(n) ? Numbers::position : Numbers::none;
}

/// A node of ours beside `like`.
Node node_beside(const Node& like, const char* op_type) {
  Node node;
  node.name = like.name;
  node.domain = "tensorbox";
  node.op_type = op_type;
  node.opset = 1;
  node.origin = like.origin;
  return node;
}

/// A new value of integers, of the shape of the strings that they stand for.
ValueId add_numbers(Graph& g, ValueId strings) {
  Value v;
  v.name = g.at(strings).name + " as numbers";
  v.type = g.at(strings).type;
  v.type.dtype = DType::i64;
  g.values.push_back(std::move(v));
  return static_cast<ValueId>(g.values.size()) - 1;
}

/// A new value of strings that numbers are looked up in.
ValueId add_table(Graph& g, std::string name) {
  Value table;
  table.name = std::move(name);
  table.type.kind = ValueType::tensor;
  table.type.dtype = DType::string;
  g.values.push_back(std::move(table));
  return static_cast<ValueId>(g.values.size()) - 1;
}

/// A classifier with string labels becomes one that gives positions (from 1), and a look-up of the labels.
bool name_classes(Graph& g, const Node& node, std::vector<Node>& nodes) {
  const std::string* labels = lowering::Registry::instance().labels_of(node);
  if (!labels) return false;
  const auto* texts = find_attribute<std::vector<std::string>>(node, "classlabels_strings");
  if (!texts || texts->empty() || node.outputs.empty() || node.outputs[0] < 0) return false;
  auto count = static_cast<int64_t>(texts->size());
  std::vector<int64_t> positions(texts->size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i) + 1;
  const ValueId table = add_table(g, node.name + " labels");
  g.at(table).type.shape = ir::SymInts{count};
  g.at(table).constant = std::make_shared<const Tensor>(Tensor::of_strings({count}, *texts));
  const ValueId index = add_numbers(g, node.outputs[0]);
  Node numbers = node, take = node_beside(node, "StringTake");
  numbers.attributes.erase("classlabels_strings");
  numbers.attributes[*labels] = std::move(positions);
  numbers.outputs[0] = index;
  take.inputs = {index, table};
  take.outputs = {node.outputs[0]};
  nodes.push_back(std::move(numbers));
  nodes.push_back(std::move(take));
  return true;
}

/// A node that works on numbers as well as on strings gets numbers, and its results become strings again.
void number_node(Graph& g, Node node, Numbers numbers, std::vector<Node>& nodes) {
  Node ids = node_beside(node, "StringIds");
  ids.attributes["numbers"] = static_cast<int64_t>(numbers);
  std::vector<ValueId> tables;
  for (ValueId& v : node.inputs) {
    if (!is_string(g, v)) continue;
    ids.inputs.push_back(v);
    tables.push_back(v);
    v = add_numbers(g, v);
    ids.outputs.push_back(v);
  }
  if (numbers == Numbers::order) {
    tables = {add_table(g, node.name + " strings")};
    ids.outputs.push_back(tables[0]);
  }
  std::vector<Node> takes;
  for (ValueId& v : node.outputs) {
    if (!is_string(g, v)) continue;
    Node take = node_beside(node, "StringTake");
    take.outputs = {v};
    v = add_numbers(g, v);
    take.inputs = {v};
    take.inputs.insert(take.inputs.end(), tables.begin(), tables.end());
    takes.push_back(std::move(take));
  }
  nodes.push_back(std::move(ids));
  nodes.push_back(std::move(node));
  std::move(takes.begin(), takes.end(), std::back_inserter(nodes));
}

} // namespace

void number_strings(Graph& g) {
  std::vector<Node> nodes;
  bool changed = false;
  for (Node& node : g.nodes) {
    const bool strings =
        std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return is_string(g, v); });
    if (name_classes(g, node, nodes)) {
      changed = true;
      continue;
    }
    const Numbers numbers = strings ? numbers_for(g, node) : Numbers::none;
    if (numbers == Numbers::none) {
      nodes.push_back(std::move(node));
      continue;
    }
    changed = true;
    number_node(g, std::move(node), numbers, nodes);
  }
  g.nodes = std::move(nodes);
  if (changed) set_producers(g);
}

} // namespace tbx::graph
