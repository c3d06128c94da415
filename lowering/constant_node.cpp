// Evaluation of one node whose inputs are all constant: for the folding pass, and for what function bodies
// compute from constants while they are lowered.
#include "lowering/constant_node.h"

#include "base/error.h"
#include "lowering/extern_run.h"
#include "lowering/lower.h"
#include "lowering/op_registry.h"
#include "lowering/reference_run.h"

namespace tbx::lowering {
namespace {

bool has_body(const Node& node) {
  for (const auto& [name, value] : node.attributes)
    if (std::holds_alternative<std::shared_ptr<Graph>>(value) ||
        std::holds_alternative<std::vector<std::shared_ptr<Graph>>>(value))
      return true;
  return false;
}

/// A graph of the node alone, in a context of its own: nothing of a folded node stays in the model's.
Graph graph_of(const Node& node, std::span<const std::shared_ptr<const Tensor>> inputs) {
  Graph one;
  one.context = std::make_shared<ir::Context>();
  Node copy = node;
  copy.origin = -1;
  copy.inputs.clear();
  copy.outputs.clear();
  auto add = [&](const std::string& name) {
    one.values.push_back({name, {}, -1, nullptr});
    return static_cast<ValueId>(one.values.size()) - 1;
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    copy.inputs.push_back(inputs[i] ? add("input" + std::to_string(i)) : -1);
    if (inputs[i]) one.values.back().constant = inputs[i];
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    copy.outputs.push_back(node.outputs[i] < 0 ? -1 : add("output" + std::to_string(i)));
    if (node.outputs[i] < 0) continue;
    one.values.back().producer = 0;
    one.outputs.push_back(copy.outputs.back());
  }
  one.nodes.push_back(std::move(copy));
  return one;
}

} // namespace

std::optional<std::vector<Tensor>>
evaluate_node(const Node& node, std::span<const std::shared_ptr<const Tensor>> inputs, int64_t max_elements) {
  if (has_body(node) || has(Trait::random, node)) return std::nullopt;
  LowerOptions options;
  options.fold_constants = false;
  ir::Program program = lower_or_throw(graph_of(node, inputs), options);
  for (const ir::ProgramOutput& output : program.outputs) {
    auto n = ir::product(program.at(output.buffer).sizes).as_constant();
    if (n ? *n > max_elements : !has(Trait::selects, node)) return std::nullopt;
  }
  std::vector<Tensor> results = run_program(program, {}, run_host), out;
  size_t next = 0;
  for (ValueId id : node.outputs) out.push_back(id < 0 ? Tensor{} : std::move(results[next++]));
  return out;
}

std::vector<Tensor> evaluate_constant_node(const Graph& graph, const Node& node, int64_t max_elements) {
  std::vector<std::shared_ptr<const Tensor>> inputs;
  for (ValueId id : node.inputs) {
    TBX_INTERNAL(id < 0 || graph.at(id).constant);
    inputs.push_back(id < 0 ? nullptr : graph.at(id).constant);
  }
  auto out = evaluate_node(node, inputs, max_elements);
  if (!out) throw_unsupported("folding of {}", node.op_type);
  return std::move(*out);
}

} // namespace tbx::lowering
