#include "driver/value_steps.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "graph/node_attributes.h"
#include "lowering/ops/host_call.h"
#include "runtime/generation/generation.h"

namespace tbx::driver {

using What = decltype(runtime::ValueStep::what);

namespace {

/// An input of the graph and its dimension whose size is the symbol `d`; -1: none.
std::pair<int, int> input_of_size(const Graph& g, ir::SymInt d) {
  for (size_t i = 0; i < g.inputs.size() && !d.is_constant(); ++i) {
    if (g.inputs[i] < 0 || !g.at(g.inputs[i]).type.shape) continue;
    const std::vector<ir::SymInt>& shape = *g.at(g.inputs[i]).type.shape;
    auto found = std::find(shape.begin(), shape.end(), d);
    if (found != shape.end()) return {static_cast<int>(i), static_cast<int>(found - shape.begin())};
  }
  return {-1, -1};
}

} // namespace

runtime::ValueEntry make_entry(const Graph& g, ValueId v, int slot) {
  runtime::ValueEntry e;
  e.slot = slot;
  if (v < 0) return e;
  const Value& value = g.at(v);
  e.name = value.name;
  e.type = type_text(value.type);
  const ValueType* type = &value.type;
  if (type->kind == ValueType::optional) {
    e.may_be_none = true;
    if (type->element) type = type->element.get();
  }
  e.kind = type->kind == ValueType::sequence ? RuntimeValue::Kind::sequence
           : type->kind == ValueType::map    ? RuntimeValue::Kind::map
                                             : RuntimeValue::Kind::tensor;
  if (e.kind != RuntimeValue::Kind::tensor) return e;
  e.dtype = e.element.dtype = type->dtype;
  e.ranked = type->shape.has_value();
  if (type->shape)
    for (ir::SymInt d : *type->shape) {
      e.dims.push_back(ir::to_string(d));
      e.element.dims.push_back(d.as_constant().value_or(0));
      e.element.same.push_back(input_of_size(g, d));
    }
  return e;
}

namespace {

std::shared_ptr<Graph> required_graph(const Node& node, const char* name) {
  const auto* g = checked_attribute<std::shared_ptr<Graph>>(node, name);
  TBX_MODEL(g && *g, "attribute '{}' is missing", name);
  return *g;
}

runtime::ValueNode value_node(const Graph& g, const Node& node) {
  runtime::ValueNode n;
  n.domain = node.domain;
  n.op = node.op_type;
  n.opset = node.opset;
  n.attributes = lowering::host_attributes(node);
  for (ValueId v : node.outputs) {
    n.wanted.push_back(v >= 0);
    n.output_types.push_back(v >= 0 && g.at(v).type.kind == ValueType::tensor ? g.at(v).type.dtype
                                                                              : DType::undefined);
  }
  return n;
}

std::vector<int64_t> per_scan(const Node& node, const char* name, size_t count) {
  const auto* given = checked_attribute<std::vector<int64_t>>(node, name);
  std::vector<int64_t> values = given ? *given : std::vector<int64_t>(count, 0);
  TBX_MODEL(values.size() == count, "attribute '{}' has {} entries for {}", name, values.size(), count);
  return values;
}

/// What a body's value is once Identities are looked through.
ValueId plain_value(const Graph& g, ValueId v) {
  while (v >= 0 && !g.at(v).constant && g.at(v).producer >= 0) {
    const Node& n = g.nodes[g.at(v).producer];
    if (n.op_type != "Identity" || !n.domain.empty()) break;
    v = n.input(0);
  }
  return v;
}

bool is_true(const Graph& g, ValueId v) {
  const auto& t = v < 0 ? nullptr : g.at(v).constant;
  return t && t->dtype == DType::boolean && t->numel() == 1 && element_as_int(*t, 0) != 0;
}

/// Neither a trip count nor a condition ends the loop.
bool never_ends(const Graph& g, const Node& node, const Graph& body) {
  if (node.input(0) >= 0) return false;
  const bool starts = node.input(1) < 0 || is_true(g, node.input(1));
  const ValueId again = plain_value(body, body.outputs[0]);
  return starts && (is_true(body, again) || (again >= 0 && again == body.inputs[1]));
}

What make_loop(const Graph& g, const Node& node, ValueCompiler& compiler,
               const std::function<int(ValueId)>& slot) {
  auto body = required_graph(node, "body");
  TBX_MODEL(body->inputs.size() >= 2 && body->outputs.size() + 1 >= body->inputs.size(),
            "attribute 'body' is no loop body: it has {} inputs and {} outputs", body->inputs.size(),
            body->outputs.size());
  TBX_MODEL(node.inputs.size() <= body->inputs.size(), "more initial values than inputs of the body");
  TBX_MODEL(node.outputs.size() + 1 <= body->outputs.size(), "more outputs than the body has");
  if (never_ends(g, node, *body))
    throw Error(ErrorKind::model, "the loop never ends: it has no trip count, and its condition stays true",
                "give the trip count, input 0, or a condition that the body computes");
  runtime::LoopStep s;
  s.carried = static_cast<int>(body->inputs.size()) - 2;
  s.iteration_dims = dims_of_loop_number(*body, 0);
  s.condition_dims = dims_of_loop_number(*body, 1);
  s.body = compiler.body(g, body, slot);
  return s;
}

What make_scan(const Graph& g, const Node& node, ValueCompiler& compiler,
               const std::function<int(ValueId)>& slot) {
  auto body = required_graph(node, "body");
  const auto* count = checked_attribute<int64_t>(node, "num_scan_inputs");
  TBX_MODEL(count != nullptr, "attribute 'num_scan_inputs' is missing");
  runtime::ScanStep s;
  s.batched = node.opset < 9;
  auto values = static_cast<int64_t>(node.inputs.size()) - s.batched, states = values - *count;
  TBX_MODEL(*count > 0 && states >= 0 && static_cast<int64_t>(body->inputs.size()) == values &&
                static_cast<int64_t>(body->outputs.size()) >= states &&
                node.outputs.size() == body->outputs.size(),
            "the body does not fit the inputs and outputs");
  s.states = static_cast<int>(states);
  auto scanned = static_cast<size_t>(*count), made = body->outputs.size() - static_cast<size_t>(states);
  s.input_axes = per_scan(node, "scan_input_axes", scanned);
  s.output_axes = per_scan(node, "scan_output_axes", made);
  for (int64_t d : per_scan(node, s.batched ? "directions" : "scan_input_directions", scanned))
    s.input_backwards.push_back(d != 0);
  for (int64_t d : per_scan(node, "scan_output_directions", made)) s.output_backwards.push_back(d != 0);
  s.body = compiler.body(g, body, slot);
  return s;
}

What make_generation(const Graph& g, const Node& node, ValueCompiler& compiler,
                     const std::function<int(ValueId)>& slot) {
  runtime::GenerationStep s;
  s.what = runtime::read_generation(value_node(g, node));
  const bool decoder_only = s.what.family == runtime::Family::gpt;
  auto decoder = required_graph(node, "decoder");
  if (!decoder_only)
    s.first = compiler.body(g, required_graph(node, "encoder"), slot);
  else if (node.attributes.count("init_decoder"))
    s.first = compiler.body(g, required_graph(node, "init_decoder"), slot);
  s.decoder = compiler.body(g, decoder, slot);
  runtime::check_bodies(s);
  return s;
}

} // namespace

What make_value_step(const Graph& g, const Node& node, ValueCompiler& compiler,
                     const std::function<int(ValueId)>& slot) {
  if (runtime::find_generation_op(node.domain, node.op_type)) return make_generation(g, node, compiler, slot);
  if (!node.domain.empty()) return runtime::OpStep{value_node(g, node)};
  if (node.op_type == "If") {
    runtime::IfStep s;
    auto then_branch = required_graph(node, "then_branch"), else_branch = required_graph(node, "else_branch");
    TBX_MODEL(node.inputs.size() == 1 && node.inputs[0] >= 0, "the condition is missing");
    TBX_MODEL(then_branch->outputs.size() >= node.outputs.size() &&
                  else_branch->outputs.size() >= node.outputs.size(),
              "the branches have {} and {} outputs, the node {}", then_branch->outputs.size(),
              else_branch->outputs.size(), node.outputs.size());
    // Exporters leave branches that make no sense for the shapes at hand: an error only when one is taken.
    auto branch = [&](const std::shared_ptr<Graph>& body) -> runtime::BodyCall {
      try {
        return compiler.body(g, body, slot);
      } catch (const Error& e) {
        if (e.kind() == ErrorKind::internal) throw;
        return {nullptr, {}, runtime::Failure::of(e)};
      }
    };
    s.then_branch = branch(then_branch);
    s.else_branch = branch(else_branch);
    if (!s.then_branch.plan && !s.else_branch.plan) throw s.then_branch.failure->error();
    return s;
  }
  if (node.op_type == "Loop") return make_loop(g, node, compiler, slot);
  if (node.op_type == "Scan") return make_scan(g, node, compiler, slot);
  if (node.op_type == "SequenceMap") {
    auto body = required_graph(node, "body");
    TBX_MODEL(body->inputs.size() == node.inputs.size() && body->outputs.size() == node.outputs.size() &&
                  !node.inputs.empty(),
              "the body does not fit the inputs and outputs");
    for (ValueId v : node.inputs) TBX_MODEL(v >= 0, "an input is missing");
    return runtime::SequenceMapStep{compiler.body(g, body, slot)};
  }
  return runtime::OpStep{value_node(g, node)};
}

} // namespace tbx::driver
