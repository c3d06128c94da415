// fold_constants, dequantize_weights: nodes over constants are computed now, by the evaluator.
#include <set>

#include "base/error.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"
#include "lowering/lower.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 24; ///< of one folded result
constexpr int64_t kMaxGrowth = int64_t{64} << 20;  ///< bytes by which folding may enlarge the model

bool foldable(const Graph& g, const Node& node) {
  if (node.inputs.empty() || node.custom || lowering::has(lowering::Trait::random, node))
    return false; // libraries run in a plan only
  for (const auto& [name, attribute] : node.attributes)
    if (std::holds_alternative<std::shared_ptr<Graph>>(attribute) ||
        std::holds_alternative<std::vector<std::shared_ptr<Graph>>>(attribute))
      return false;
  for (ValueId id : node.inputs) {
    if (id < 0) continue;
    const auto& t = g.at(id).constant;
    if (!t || t->dtype == DType::string || is_complex(t->dtype) || t->numel() > kMaxElements) return false;
  }
  for (ValueId id : node.outputs) {
    if (id < 0) continue;
    const ValueType& type = g.at(id).type;
    if (type.kind != ValueType::tensor || type.dtype == DType::string || is_complex(type.dtype) ||
        !type.shape)
      return false;
    // What is not known yet may depend on elements (Unique), or on sizes of what has just been folded.
    auto n = ir::product(*type.shape).as_constant();
    if (n && *n > kMaxElements) return false;
  }
  return true;
}

int fold(Graph& graph, bool dequantize) {
  std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());
  int64_t growth = 0;
  int count = 0;
  for (Node& node : graph.nodes) {
    if (!foldable(graph, node) || (!dequantize && node.op_type == "DequantizeLinear")) continue;
    bool is_output = false;
    for (ValueId id : node.outputs) is_output |= outputs.count(id) != 0;
    if (is_output) continue;
    std::vector<Tensor> values;
    try {
      values = lowering::evaluate_constant_node(graph, node, kMaxElements);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::unsupported) continue; // runs at run time instead
      throw;
    }
    int64_t before = 0, after = 0;
    for (ValueId id : node.inputs)
      if (id >= 0) before += graph.at(id).constant->bytes();
    for (const Tensor& t : values) after += t.bytes();
    if (after > before && growth + after - before > kMaxGrowth) continue;
    growth += std::max<int64_t>(0, after - before);
    for (size_t i = 0; i < node.outputs.size() && i < values.size(); ++i)
      if (node.outputs[i] >= 0) {
        graph.at(node.outputs[i]).type.shape = ir::SymInts(values[i].dims.begin(), values[i].dims.end());
        graph.at(node.outputs[i]).constant = std::make_shared<const Tensor>(std::move(values[i]));
      }
    ++count;
  }
  return count;
}

} // namespace

int fold_constants(Graph& graph) { return fold(graph, false); }

int dequantize_weights(Graph& graph) { return fold(graph, true); }

} // namespace tbx::graph
