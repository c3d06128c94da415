// Evaluation of one node whose inputs are all constant, for constant folding.
#include "base/error.h"
#include "lowering/lower.h"
#include "lowering/reference_run.h"

namespace tbx::lowering {

std::vector<Tensor> evaluate_constant_node(const Graph& graph, const Node& node) {
  for (const auto& [name, value] : node.attributes)
    if (std::holds_alternative<std::shared_ptr<Graph>>(value)) throw_unsupported("folding of control flow");
  Graph one;
  one.context = std::make_shared<ir::Context>(); // nothing of a folded node stays in the model's context
  one.opset_imports = graph.opset_imports;
  auto add = [&](ValueId id) -> ValueId {
    if (id < 0) return -1;
    Value v;
    v.name = graph.at(id).name;
    v.constant = graph.at(id).constant;
    one.values.push_back(std::move(v));
    return static_cast<ValueId>(one.values.size()) - 1;
  };
  Node copy = node;
  copy.origin = -1;
  copy.inputs.clear();
  copy.outputs.clear();
  for (ValueId id : node.inputs) {
    TBX_INTERNAL(id < 0 || graph.at(id).constant);
    copy.inputs.push_back(add(id));
  }
  for (ValueId id : node.outputs) {
    copy.outputs.push_back(add(id));
    if (id < 0) continue;
    one.at(copy.outputs.back()).constant = nullptr;
    one.at(copy.outputs.back()).producer = 0;
    one.outputs.push_back(copy.outputs.back());
  }
  one.nodes.push_back(std::move(copy));
  std::vector<Tensor> results = run_program(lower(one), {});
  // One per output of the node, undefined for those left out.
  std::vector<Tensor> out;
  size_t next = 0;
  for (ValueId id : node.outputs) out.push_back(id < 0 ? Tensor{} : std::move(results[next++]));
  return out;
}

} // namespace tbx::lowering
