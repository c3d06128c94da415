// fold_quantisation: an exact integer product that is scaled, and quantised again, is scaled once.
#include <cmath>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

/// The constant divided by the scale; nullopt where an element would leave the range of normal numbers.
std::optional<Tensor> divided(const Tensor& t, double scale) {
  Tensor out = Tensor::make(DType::f32, t.dims);
  const std::span<float> to = out.as_mutable<float>();
  const std::span<const float> from = t.as<float>();
  for (size_t i = 0; i < from.size(); ++i) {
    const float x = from[i], y = static_cast<float>(x / scale);
    if (x != 0 && !std::isnormal(y)) return std::nullopt;
    to[i] = y;
  }
  return out;
}

class QuantisedProducts {
public:
  explicit QuantisedProducts(Graph& graph) : e_(graph), g_(graph) {}

  int run() {
    int count = 0;
    for (Node& node : g_.nodes)
      if (node.domain.empty() && node.op_type == "QuantizeLinear") count += fold(node);
    return count;
  }

private:
  /// The input of `node` that is a constant, and the other one.
  std::optional<std::pair<int, int>> constant_side(const Node& node) const {
    for (int k = 0; k < 2; ++k)
      if (f32_constant(g_, node.inputs[k])) return std::pair(k, 1 - k);
    return std::nullopt;
  }

  /// What leaves a common positive factor of its input as it is.
  Node* homogeneous(ValueId id) {
    for (const char* op : {"Relu", "LeakyRelu"})
      if (Node* node = e_.producer(id, op)) return node;
    return nullptr;
  }

  bool is_integer_product(ValueId id) {
    Node* cast = e_.producer(id, "Cast");
    if (!cast || e_.uses(id) != 1 || g_.at(id).type.dtype != DType::f32) return false;
    const ValueId sum = cast->inputs[0];
    return e_.uses(sum) == 1 && (e_.producer(sum, "ConvInteger") || e_.producer(sum, "MatMulInteger"));
  }

  bool fold(Node& quantize) {
    if (quantize.inputs.size() < 2 || attribute_or<int64_t>(quantize, "block_size", 0) != 0) return false;
    const Tensor* scale = f32_constant(g_, quantize.inputs[1]);
    if (!scale || scale->numel() != 1) return false;
    const float s = scale->as<float>()[0];
    if (!(s > 0) || !std::isnormal(s) || s == 1) return false;

    std::vector<Node*> scaled; // the nodes whose constants are divided: Add, Mul
    ValueId x = quantize.inputs[0];
    for (bool found = false; !found;) {
      if (e_.uses(x) != 1) return false;
      if (Node* node = homogeneous(x)) {
        x = node->inputs[0];
        continue;
      }
      Node* node = scaled.empty() ? e_.producer(x, "Add") : nullptr;
      if (!node) {
        node = e_.producer(x, "Mul");
        found = true;
      }
      if (!node || node->inputs.size() != 2) return false;
      auto side = constant_side(*node);
      if (!side) return false;
      scaled.push_back(node);
      x = node->inputs[side->second];
    }
    if (!is_integer_product(x)) return false;

    std::vector<Tensor> constants;
    for (const Node* node : scaled) {
      auto t = divided(*f32_constant(g_, node->inputs[constant_side(*node)->first]), s);
      if (!t) return false;
      constants.push_back(std::move(*t));
    }
    for (size_t k = 0; k < scaled.size(); ++k) {
      const int side = constant_side(*scaled[k])->first;
      std::vector<ValueId> inputs = scaled[k]->inputs;
      inputs[side] = e_.add_constant(std::move(constants[k]), g_.at(inputs[side]).name + ".quantised");
      e_.become(*scaled[k], std::string(scaled[k]->op_type).c_str(), scaled[k]->opset, inputs,
                scaled[k]->attributes);
    }
    Tensor one = Tensor::make(DType::f32, scale->dims);
    one.as_mutable<float>()[0] = 1;
    std::vector<ValueId> inputs = quantize.inputs;
    inputs[1] = e_.add_constant(std::move(one), g_.at(inputs[1]).name + ".one");
    e_.become(quantize, "QuantizeLinear", quantize.opset, inputs, quantize.attributes);
    return true;
  }

  Editor e_;
  Graph& g_;
};

} // namespace

int fold_quantisation(Graph& graph) { return QuantisedProducts(graph).run(); }

} // namespace tbx::graph
