// join_products: the products that attention begins with (queries, keys, values) become one product, whose
// results are views of it: on CPUs, where rows are few, threads meet once instead of three times; a GPU
// starts one kernel instead of three, of which each alone would leave most of it idle. Products that an
// activation or a gate follows stay apart: there the library computes what follows while it has the elements,
// which a product of both could not.
//
// join_gates: a product that is multiplied by the activation of another one of the same input (gate and up),
// for a GPU. Its library has no such activation or ends with it, and multiplies by nothing: what follows is a
// kernel of its own anyway, or the end of a product of one row of ours.
#include <algorithm>
#include <array>
#include <map>

#include "graph/node_attributes.h"
#include "graph/passes/join.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

/// Of the input, on CPUs. A decoder's step gains; with 64 to 1,500 rows of 384, 512 and 768 columns one
/// thread took 0.95 to 1.02 of the time of three products, which is not worth a copy of the weights.
constexpr int64_t kMostRows = 32;

/// One product x*W (+ bias) of constants.
struct Product {
  int node = -1, add = -1; ///< the product, and the sum with its bias where that is a node of its own
  const Tensor* weights = nullptr;
  const Tensor* bias = nullptr; ///< may be missing
  ValueId result = -1;
};

/// What the products of a group have in common besides their input.
struct Kind {
  ValueId x;
  bool gemm, transposed; ///< transposed: weights are [columns, rows]
  int64_t rows;
  DType type;          ///< of the weights in memory
  DType wide;          ///< of the operand: float32 where it is a Cast of halves (widen_halves)
  DType stored_wide;   ///< Value::stored of the operand
  DType stored_result; ///< and of the results
  int gate;            ///< join_gates: the node that multiplies two results
  auto operator<=>(const Kind&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

enum class Wanted : uint8_t { heads, gates };

class Joiner {
public:
  Joiner(Graph& graph, const PassContext& context, Wanted wanted)
      : e_(graph), g_(graph), wanted_(wanted), any_rows_(context.target.cuda), readers_(e_) {}

  int run() {
    std::map<Kind, std::vector<Product>> groups;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      Kind kind{};
      if (auto product = find(static_cast<int>(i), kind)) groups[kind].push_back(*product);
    }
    int joined = 0;
    for (const auto& [kind, products] : groups)
      if (products.size() > 1) {
        join(kind, products);
        joined += static_cast<int>(products.size());
      }
    if (joined > 0) replace_nodes(g_, std::move(made_), replaced_);
    return joined;
  }

private:
  std::optional<Product> find(int at, Kind& kind) {
    const Node& node = g_.nodes[at];
    const bool gemm = node.op_type == "Gemm";
    if (!node.domain.empty() || (!gemm && node.op_type != "MatMul")) return std::nullopt;
    const ValueId x = node.inputs[0];
    Product p;
    p.node = at;
    const ValueId weights = node.inputs[1];
    p.weights = constant_of(weights);
    if (!p.weights) p.weights = widened_constant(weights);
    const auto& shape = g_.at(x).type.shape;
    if (!p.weights || p.weights->dims.size() != 2 || g_.at(x).constant || !shape || shape->size() < 2)
      return std::nullopt;
    const auto rows = ir::product(std::span(*shape).first(shape->size() - 1)).as_constant();
    if (!any_rows_ && (!rows || *rows > kMostRows)) return std::nullopt;
    p.result = node.outputs[0];
    if (gemm) {
      auto number = [&](const char* name) { return attribute_or<float>(node, name, 1); };
      if (attribute_or<int64_t>(node, "transA", 0) != 0 || number("alpha") != 1 || number("beta") != 1)
        return std::nullopt;
      if (node.input(2) >= 0 && !(p.bias = bias_of(node.inputs[2], p, node))) return std::nullopt;
    } else if (const int add = readers_.only(p.result); add >= 0) {
      const Node& sum = g_.nodes[add];
      if (sum.domain.empty() && sum.op_type == "Add" && !places_operand(sum)) {
        const ValueId other = sum.inputs[0] == p.result ? sum.inputs[1] : sum.inputs[0];
        p.bias = bias_of(other, p, node);
        p.add = add;
        p.result = sum.outputs[0];
        if (!p.bias) return std::nullopt; // a residual, which the library adds
      }
    }
    const auto& made = g_.at(p.result).type.shape;
    if (!made || made->size() != shape->size()) return std::nullopt;
    const int gate = wanted_ == Wanted::gates ? gate_of(p.result) : -1;
    if (wanted_ == Wanted::gates ? gate < 0 : !readers_.split_into_heads(p.result)) return std::nullopt;
    const bool transposed = gemm && attribute_or<int64_t>(node, "transB", 0) != 0;
    kind = {x,
            gemm,
            transposed,
            p.weights->dims[transposed ? 1 : 0],
            p.weights->dtype,
            g_.at(weights).type.dtype,
            g_.at(weights).stored,
            g_.at(p.result).stored,
            gate};
    return p;
  }

  static int64_t columns(const Product& p, const Node& node) {
    return p.weights->dims[attribute_or<int64_t>(node, "transB", 0) != 0 ? 0 : 1];
  }

  /// Floats of 2 or 4 bytes, or nullptr.
  const Tensor* constant_of(ValueId id) const {
    if (id < 0 || !g_.at(id).constant) return nullptr;
    const Tensor& t = *g_.at(id).constant;
    return t.dtype == DType::f32 || is_half(t.dtype) ? &t : nullptr;
  }

  /// Halves that a product of float32 multiplies.
  const Tensor* widened_constant(ValueId id) const {
    const int at = id < 0 ? -1 : g_.at(id).producer;
    if (at < 0 || g_.at(id).type.dtype != DType::f32) return nullptr;
    const Node& node = g_.nodes[at];
    if (!node.domain.empty() || node.op_type != "Cast") return nullptr;
    const Tensor* t = constant_of(node.inputs[0]);
    return t && is_half(t->dtype) ? t : nullptr;
  }

  const Tensor* bias_of(ValueId id, const Product& p, const Node& node) const {
    const Tensor* bias = constant_of(id);
    return bias && bias->dtype == g_.at(node.inputs[1]).type.dtype && bias->dims.size() == 1 &&
                   bias->dims[0] == columns(p, node)
               ? bias
               : nullptr;
  }

  /// The Mul that multiplies the value, or what an activation makes of it, by something else; -1: none does.
  int gate_of(ValueId id) const {
    static constexpr std::array kActivations = {"Swish", "Gelu", "Sigmoid", "Relu", "Tanh", "HardSwish"};
    int reader = readers_.only(id);
    if (reader < 0 || !g_.nodes[reader].domain.empty()) return -1;
    if (std::count(kActivations.begin(), kActivations.end(), g_.nodes[reader].op_type) > 0)
      reader = readers_.only(g_.nodes[reader].outputs[0]);
    return reader >= 0 && g_.nodes[reader].domain.empty() && g_.nodes[reader].op_type == "Mul" ? reader : -1;
  }

  /// The rows of all weights side by side, or one after the other where they are transposed.
  static Tensor joined_weights(const Kind& kind, const std::vector<Product>& products) {
    std::vector<const Tensor*> all(products.size());
    std::transform(products.begin(), products.end(), all.begin(), [](const Product& p) { return p.weights; });
    return kind.transposed ? end_to_end(all) : side_by_side(all);
  }

  /// A node in the place of `of`.
  static Node& add_node(std::vector<Node>& to, const Node& of, const char* op, int opset,
                        std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
    Node& node = to.emplace_back();
    node.op_type = op;
    node.opset = opset;
    node.name = of.name;
    node.origin = of.origin;
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    return node;
  }

  void join(const Kind& kind, const std::vector<Product>& products) {
    std::vector<int64_t> lengths;
    int64_t columns = 0;
    std::vector<const Tensor*> biases;
    bool biased = false;
    for (const Product& p : products) {
      biases.push_back(p.bias);
      lengths.push_back(p.weights->dims[kind.transposed ? 0 : 1]);
      columns += lengths.back();
      biased |= p.bias != nullptr;
    }
    const Node& first = g_.nodes[products[0].node];
    const std::string name = g_.at(products[0].result).name + " and more";
    ValueType type = g_.at(products[0].result).type;
    type.shape->back() = columns;
    std::vector<Node>& made = made_[products[0].node];
    auto add = [&](const char* op, int opset, std::vector<ValueId> inputs,
                   std::vector<ValueId> outputs) -> Node& {
      return add_node(made, first, op, opset, std::move(inputs), std::move(outputs));
    };
    ValueId weights = e_.add_constant(joined_weights(kind, products), "");
    if (kind.wide != kind.type) {
      ValueType wide = g_.at(weights).type;
      wide.dtype = kind.wide;
      const ValueId narrow = weights;
      weights = e_.add_value("", wide);
      g_.at(weights).stored = kind.stored_wide;
      add("Cast", 13, {narrow}, {weights}).attributes["to"] = static_cast<int64_t>(kind.wide);
    }
    const ValueId bias =
        biased ? e_.add_constant(joined_biases(biases, lengths, kind.wide), "") : ValueId{-1};
    auto add_result = [&] {
      const ValueId id = e_.add_value(name, type);
      g_.at(id).stored = kind.stored_result;
      return id;
    };
    ValueId result = add_result();
    if (kind.gemm) {
      Node& gemm = add("Gemm", 13, {kind.x, weights}, {result});
      if (biased) gemm.inputs.push_back(bias);
      gemm.attributes["transB"] = int64_t{kind.transposed};
    } else {
      add("MatMul", 13, {kind.x, weights}, {result});
      if (biased) {
        const ValueId sum = add_result();
        add("Add", 14, {result, bias}, {sum});
        result = sum;
      }
    }
    std::vector<ValueId> parts;
    for (const Product& p : products) {
      parts.push_back(p.result);
      replaced_.push_back(p.node);
      if (p.add >= 0) replaced_.push_back(p.add);
    }
    made.push_back(
        split_of(e_, first, result, std::move(parts), lengths, static_cast<int64_t>(type.shape->size()) - 1));
  }

  Editor e_;
  Graph& g_;
  const Wanted wanted_;
  const bool any_rows_;
  Readers readers_;
  std::map<int, std::vector<Node>> made_; ///< by the node they replace
  std::vector<int> replaced_;
};

} // namespace

int join_products(Graph& graph, const PassContext& context) {
  return Joiner(graph, context, Wanted::heads).run();
}

int join_gates(Graph& graph, const PassContext& context) {
  return context.target.cuda ? Joiner(graph, context, Wanted::gates).run() : 0;
}

} // namespace tbx::graph
