// join_integer_products: products of one dynamically quantised input that attention begins with (queries,
// keys, values) become one, whose results are parts of it. For a GPU: each of them alone has few tiles, and
// their scales and biases are applied where the sums are.
//
// One product is MatMulInteger, a Cast to float32, a Mul with the product of both scales, and an Add of its
// bias, or none. Each element is computed by the same operations as before.
#include <algorithm>
#include <map>
#include <tuple>

#include "graph/node_attributes.h"
#include "graph/passes/join.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

/// One product, by its nodes: -1 where there is none.
struct Chain {
  int product = -1, cast = -1, scale = -1, mul = -1, add = -1; ///< scale: makes the product of both scales
  const Tensor *weights = nullptr, *weight_scale = nullptr, *bias = nullptr;
  ValueId result = -1;
};

/// What products have in common that can be one.
struct Kind {
  ValueId x, x_zero, x_scale;
  DType weights;
  int64_t rows, zero; ///< zero: of all weights
  bool biased;
  DType stored;                                  ///< Value::stored of the result
  auto operator<=>(const Kind&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

class Joiner {
public:
  explicit Joiner(Graph& graph) : e_(graph), g_(graph), readers_(e_) {}

  int run() {
    std::map<Kind, std::vector<Chain>> groups;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      Kind kind{};
      if (auto chain = find(static_cast<int>(i), kind)) groups[kind].push_back(*chain);
    }
    std::map<int, std::vector<Node>> made;
    std::vector<int> gone;
    int joined = 0;
    for (const auto& [kind, chains] : groups) {
      if (chains.size() < 2) continue;
      made[chains[0].product] = join(kind, chains);
      for (const Chain& c : chains)
        for (int i : {c.product, c.cast, c.mul, c.add})
          if (i >= 0) gone.push_back(i);
      joined += static_cast<int>(chains.size());
    }
    if (joined > 0) replace_nodes(g_, std::move(made), gone);
    return joined;
  }

private:
  const Node* node_of(int at, const char* op_type) const {
    if (at < 0) return nullptr;
    const Node& node = g_.nodes[at];
    return node.domain.empty() && node.op_type == op_type && !places_operand(node) ? &node : nullptr;
  }
  const Tensor* constant(ValueId id) const { return id < 0 ? nullptr : g_.at(id).constant.get(); }

  std::optional<Chain> find(int at, Kind& kind) {
    Chain c;
    c.product = at;
    const Node* product = node_of(at, "MatMulInteger");
    if (!product) return std::nullopt;
    c.weights = constant(product->inputs[1]);
    const auto& shape = g_.at(product->inputs[0]).type.shape;
    if (!c.weights || c.weights->dims.size() != 2 || constant(product->inputs[0]) || !shape ||
        shape->size() < 2)
      return std::nullopt;
    const std::optional<int64_t> zero = zero_of(product->input(3));
    if (!zero || !find_scales(*product, c, kind)) return std::nullopt;
    kind.x = product->inputs[0];
    kind.x_zero = product->input(2);
    kind.weights = c.weights->dtype;
    kind.rows = c.weights->dims[0];
    kind.zero = *zero;
    kind.biased = c.add >= 0;
    kind.stored = g_.at(c.result).stored;
    const auto& made = g_.at(c.result).type.shape;
    return made && made->size() == shape->size() && readers_.split_into_heads(c.result) ? std::optional(c)
                                                                                        : std::nullopt;
  }

  /// The one zero point of the weights; nullopt: there are several.
  std::optional<int64_t> zero_of(ValueId id) const {
    if (id < 0) return 0;
    const Tensor* t = constant(id);
    if (!t || t->numel() == 0 || t->dims.size() > 1) return std::nullopt;
    const std::vector<int64_t> all = to_ints(*t);
    return std::count(all.begin(), all.end(), all[0]) == t->numel() ? std::optional(all[0]) : std::nullopt;
  }

  /// What follows the product.
  bool find_scales(const Node& product, Chain& c, Kind& kind) {
    c.cast = readers_.only(product.outputs[0]);
    const Node* cast = node_of(c.cast, "Cast");
    if (!cast || g_.at(cast->outputs[0]).type.dtype != DType::f32) return false;
    c.mul = readers_.only(cast->outputs[0]);
    const Node* mul = node_of(c.mul, "Mul");
    if (!mul) return false;
    const ValueId scale = mul->inputs[0] == cast->outputs[0] ? mul->inputs[1] : mul->inputs[0];
    c.scale = g_.at(scale).producer;
    const Node* scales = node_of(c.scale, "Mul");
    if (!scales) return false;
    const int given = constant(scales->inputs[0]) ? 0 : 1;
    c.weight_scale = constant(scales->inputs[given]);
    kind.x_scale = scales->inputs[1 - given];
    // The scale is there where the quantised input is: the new nodes stand before those of other products.
    if (!c.weight_scale || g_.at(kind.x_scale).producer < 0 ||
        g_.at(kind.x_scale).producer != g_.at(product.inputs[0]).producer)
      return false;
    const int64_t columns = c.weights->dims[1], count = c.weight_scale->numel();
    const auto& of_scale = g_.at(kind.x_scale).type.shape;
    if (c.weight_scale->dims.size() > 1 || (count != 1 && count != columns) || !of_scale ||
        !ir::product(*of_scale).is(1) || of_scale->size() > 1)
      return false;
    c.result = mul->outputs[0];
    const int add = readers_.only(c.result);
    if (const Node* sum = node_of(add, "Add")) {
      const ValueId other = sum->inputs[0] == c.result ? sum->inputs[1] : sum->inputs[0];
      c.bias = constant(other);
      if (!c.bias || c.bias->dims != std::vector<int64_t>{columns}) return false; // a residual
      c.add = add;
      c.result = sum->outputs[0];
    }
    return true;
  }

  /// The scale of each column of all weights.
  ValueId joined_scales(const std::vector<Chain>& chains, int64_t columns) {
    Tensor all = Tensor::make(DType::f32, {columns});
    auto to = all.as_mutable<float>().begin();
    for (const Chain& c : chains) {
      const auto from = c.weight_scale->as<float>();
      const int64_t n = c.weights->dims[1];
      to = from.size() == 1 ? std::fill_n(to, n, from[0]) : std::copy_n(from.begin(), n, to);
    }
    return e_.add_constant(std::move(all), "");
  }

  /// The zero point of all columns, of which `zeros` may have one for each.
  ValueId one_zero(const Tensor& zeros) {
    Tensor one = Tensor::make(zeros.dtype, {});
    std::copy_n(zeros.data, size_of(zeros.dtype), one.mutable_data());
    return e_.add_constant(std::move(one), "");
  }

  std::vector<Node> join(const Kind& kind, const std::vector<Chain>& chains) {
    std::vector<const Tensor*> weights, biases;
    std::vector<ValueId> parts;
    std::vector<int64_t> lengths;
    int64_t columns = 0;
    for (const Chain& c : chains) {
      weights.push_back(c.weights);
      if (c.bias) biases.push_back(c.bias);
      parts.push_back(c.result);
      lengths.push_back(c.weights->dims[1]);
      columns += lengths.back();
    }
    const Chain& first = chains[0];
    // A node like the first product's, with another constant, and a result of all columns.
    auto like = [&](int at, std::vector<ValueId> inputs) {
      Node node = g_.nodes[at];
      ValueType type = g_.at(node.outputs[0]).type;
      if (at == first.scale)
        type.shape = {columns};
      else
        type.shape->back() = columns;
      const DType stored = g_.at(node.outputs[0]).stored;
      node.inputs = std::move(inputs);
      node.outputs = {e_.add_value(g_.at(node.outputs[0]).name + " and more", type)};
      g_.at(node.outputs[0]).stored = stored;
      return node;
    };
    std::vector<Node> made;
    std::vector<ValueId> inputs = g_.nodes[first.product].inputs;
    inputs[1] = e_.add_constant(side_by_side(weights), "");
    if (inputs.size() > 3 && inputs[3] >= 0) inputs[3] = one_zero(*constant(inputs[3]));
    made.push_back(like(first.product, std::move(inputs)));
    made.push_back(like(first.cast, {made.back().outputs[0]}));
    const ValueId sums = made.back().outputs[0];
    made.push_back(like(first.scale, {kind.x_scale, joined_scales(chains, columns)}));
    made.push_back(like(first.mul, {sums, made.back().outputs[0]}));
    if (first.bias)
      made.push_back(like(first.add, {made.back().outputs[0], e_.add_constant(end_to_end(biases), "")}));
    const ValueId result = made.back().outputs[0];
    const auto axis = static_cast<int64_t>(g_.at(result).type.shape->size()) - 1;
    made.push_back(split_of(e_, made[0], result, std::move(parts), lengths, axis));
    return made;
  }

  Editor e_;
  Graph& g_;
  Readers readers_;
};

} // namespace

int join_integer_products(Graph& graph, const PassContext& context) {
  return context.target.cuda ? Joiner(graph).run() : 0;
}

} // namespace tbx::graph
