// pool_integers: the greatest of dequantised integers is the greatest of these integers, dequantised; and
// what is quantised again as it was dequantised is what it was. Integers of 8 bits lie four times as dense as
// floats.
#include <algorithm>
#include <numeric>

#include "graph/node_attributes.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"

namespace tbx::graph {
namespace {

class IntegerPools {
public:
  explicit IntegerPools(Graph& graph) : e_(graph), g_(graph) {}

  int run() {
    int count = 0;
    std::vector<Node> nodes;
    for (const Node& node : g_.nodes) {
      std::vector<Node> made = pooled(node);
      count += !made.empty();
      if (made.empty()) made.push_back(node);
      std::move(made.begin(), made.end(), std::back_inserter(nodes));
    }
    if (count == 0) return 0;
    g_.nodes = std::move(nodes);
    set_producers(g_);
    skip_same_scale();
    return count;
  }

private:
  DType type_of(ValueId id) const { return id < 0 ? DType::undefined : g_.at(id).type.dtype; }

  /// What makes float32 of bytes by one positive scale, whose products with bytes are normal numbers.
  const Node* dequantised(ValueId id) {
    const Node* node = e_.producer(id, "DequantizeLinear");
    if (!node || node->inputs.size() < 2 || type_of(id) != DType::f32 || !is_byte(type_of(node->inputs[0])) ||
        g_.at(node->inputs[0]).constant || attribute_or<int64_t>(*node, "block_size", 0) != 0)
      return nullptr;
    const Tensor* scale = f32_constant(g_, node->inputs[1]);
    if (!scale || scale->numel() != 1) return nullptr;
    const float s = scale->as<float>()[0];
    return s > 0x1p-100f && s < 0x1p100f ? node : nullptr;
  }

  /// Each window has an element of an image that has any. Padding is less than every float, but not than
  /// every integer: of an image without pixels, which ONNX Runtime refuses, the result is the least integer
  /// then.
  static bool has_no_empty_window(const Node& pool) {
    const auto kernel = attribute_or<std::vector<int64_t>>(pool, "kernel_shape", {});
    const auto pads = attribute_or<std::vector<int64_t>>(pool, "pads", {});
    const auto dilations = attribute_or<std::vector<int64_t>>(pool, "dilations", {});
    if (kernel.empty() || attribute_or<int64_t>(pool, "ceil_mode", 0) != 0) return false;
    for (int64_t d : dilations)
      if (d != 1) return false;
    for (size_t k = 0; k < pads.size(); ++k)
      if (pads[k] < 0 || pads[k] >= kernel[k % kernel.size()]) return false;
    return true;
  }

  /// The pool of the integers and what dequantises its result; empty: nothing to do.
  std::vector<Node> pooled(const Node& node) {
    if (!node.domain.empty() || node.op_type != "MaxPool" || node.inputs.size() != 1) return {};
    if (node.outputs.size() > 1 && node.outputs[1] >= 0) return {};
    const Node* from = dequantised(node.inputs[0]);
    if (!from || !has_no_empty_window(node)) return {};
    ValueType type = g_.at(node.outputs[0]).type;
    type.dtype = type_of(from->inputs[0]);
    const ValueId greatest = e_.add_value(g_.at(node.outputs[0]).name + ".integer", std::move(type));
    Node pool = node, after = *from;
    pool.opset = std::max(node.opset, 12); // the first that knows integers
    pool.inputs = {from->inputs[0]};
    pool.outputs = {greatest};
    after.name = node.name;
    after.origin = node.origin;
    after.inputs[0] = greatest;
    after.outputs = {node.outputs[0]};
    return {std::move(pool), std::move(after)};
  }

  bool is_same(ValueId a, ValueId b) const {
    if (a == b) return true;
    if (a < 0 || b < 0) return false;
    const auto &x = g_.at(a).constant, &y = g_.at(b).constant;
    return x && y && x->dtype == y->dtype && x->numel() == 1 && y->numel() == 1 &&
           std::equal(x->data, x->data + x->bytes(), y->data);
  }

  /// QuantizeLinear(DequantizeLinear(x, s, z), s, z) -> x.
  void skip_same_scale() {
    std::vector<ValueId> stands_for(g_.values.size());
    std::iota(stands_for.begin(), stands_for.end(), 0);
    for (const Node& node : g_.nodes) {
      if (!node.domain.empty() || node.op_type != "QuantizeLinear" || node.inputs.size() < 2) continue;
      const Node* from = dequantised(node.inputs[0]);
      if (!from || type_of(from->inputs[0]) != type_of(node.outputs[0]) ||
          !is_same(from->inputs[1], node.inputs[1]) || !is_same(from->input(2), node.input(2)))
        continue;
      if (e_.producer(from->inputs[0], "MaxPool")) stands_for[node.outputs[0]] = from->inputs[0];
    }
    replace_values(g_, std::move(stands_for));
  }

  Editor e_;
  Graph& g_;
};

} // namespace

int pool_integers(Graph& graph) { return IntegerPools(graph).run(); }

} // namespace tbx::graph
