// join_packed_products: products of one input with packed integers (MatMulNBits: queries, keys and values;
// gate and up) become one product, whose results are parts of it. For a GPU: a step of a decoder starts one
// kernel instead of several, each of which reads little, and rounds the activations once.
#include <algorithm>
#include <map>
#include <tuple>

#include "graph/node_attributes.h"
#include "graph/passes/join.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

constexpr size_t kWeights = 1, kBias = 5;

class Joiner {
public:
  explicit Joiner(Graph& graph) : e_(graph), g_(graph) {}

  int run() {
    std::map<Kind, std::vector<int>> groups;
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      if (auto kind = find(g_.nodes[i])) groups[*kind].push_back(static_cast<int>(i));
    std::map<int, std::vector<Node>> made; // by the first node that they replace: no result was read before
    std::vector<int> gone;
    for (const auto& [kind, products] : groups) {
      if (products.size() < 2) continue;
      made[products[0]] = join(products);
      gone.insert(gone.end(), products.begin(), products.end());
    }
    const int joined = static_cast<int>(gone.size());
    if (joined > 0) replace_nodes(g_, std::move(made), gone);
    return joined;
  }

private:
  /// What products have in common that can be one: the input, its version, attributes but for N, which inputs
  /// there are, of which types and forms (dimensions behind the first), and how the result is stored.
  using Kind = std::tuple<ValueId, int, std::vector<int64_t>, std::vector<int64_t>, DType>;

  std::optional<Kind> find(const Node& node) const {
    if (node.op_type != "MatMulNBits" || node.domain != "com.microsoft" || node.input(4) >= 0)
      return std::nullopt;
    const auto& shape = g_.at(node.inputs[0]).type.shape;
    if (g_.at(node.inputs[0]).constant || !shape || shape->empty()) return std::nullopt;
    auto number = [&](const char* name, int64_t none) { return attribute_or<int64_t>(node, name, none); };
    const int64_t columns = number("N", 0);
    if (columns < 1) return std::nullopt;
    std::vector<int64_t> forms;
    for (size_t i = kWeights; i <= kBias; ++i) {
      const ValueId id = node.input(i);
      forms.push_back(id >= 0);
      if (id < 0) continue;
      const auto& constant = g_.at(id).constant;
      if (!constant || constant->dims.empty() || constant->dims[0] % columns != 0) return std::nullopt;
      forms.push_back(static_cast<int64_t>(constant->dtype));
      forms.push_back(constant->dims[0] / columns);
      forms.insert(forms.end(), constant->dims.begin() + 1, constant->dims.end());
    }
    std::vector<int64_t> numbers{number("K", 0), number("bits", 4), number("block_size", 0),
                                 number("accuracy_level", 0), number("weight_prepacked", 0)};
    return Kind{node.inputs[0], node.opset, std::move(numbers), std::move(forms),
                g_.at(node.outputs[0]).stored};
  }

  /// Those of all columns, one after the other.
  ValueId joined(const std::vector<int>& products, size_t input) {
    std::vector<const Tensor*> parts(products.size());
    std::transform(products.begin(), products.end(), parts.begin(),
                   [&](int i) { return g_.at(g_.nodes[i].inputs[input]).constant.get(); });
    return e_.add_constant(end_to_end(parts), "");
  }

  std::vector<Node> join(const std::vector<int>& products) {
    const Node& first = g_.nodes[products[0]];
    Node product = first;
    for (size_t i = kWeights; i < first.inputs.size(); ++i)
      if (first.inputs[i] >= 0) product.inputs[i] = joined(products, i);
    std::vector<int64_t> lengths;
    int64_t columns = 0;
    std::vector<ValueId> parts;
    for (int i : products) {
      lengths.push_back(attribute_or<int64_t>(g_.nodes[i], "N", 0));
      columns += lengths.back();
      parts.push_back(g_.nodes[i].outputs[0]);
    }
    product.attributes["N"] = columns;
    ValueType type = g_.at(first.outputs[0]).type;
    type.shape = g_.at(first.inputs[0]).type.shape;
    type.shape->back() = columns;
    const ValueId result = e_.add_value(g_.at(first.outputs[0]).name + " and more", type);
    g_.at(result).stored = g_.at(parts[0]).stored;
    product.outputs = {result};
    Node split = split_of(e_, product, result, std::move(parts), lengths,
                          static_cast<int64_t>(type.shape->size()) - 1);
    return {std::move(product), std::move(split)};
  }

  Editor e_;
  Graph& g_;
};

} // namespace

int join_packed_products(Graph& graph, const PassContext& context) {
  return context.target.cuda ? Joiner(graph).run() : 0;
}

} // namespace tbx::graph
