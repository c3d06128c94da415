// GraphBuilder: calls of functions, whose bodies become part of the graph.
#include "base/budget.h"
#include "base/error.h"
#include "graph/names.h"
#include "importer/to_graph.h"

namespace tbx::importer {
namespace {

using onnx::AttributeProto;

/// ONNX's bodies, written as text, refer to attributes without saying their type.
void type_references(onnx::FunctionProto& function,
                     const std::unordered_map<std::string, AttributeProto>& attributes) {
  for (auto& node : *function.mutable_node()) {
    for (int i = node.attribute_size() - 1; i >= 0; --i) {
      AttributeProto& a = *node.mutable_attribute(i);
      if (a.ref_attr_name().empty() || a.type() != AttributeProto::UNDEFINED) continue;
      if (auto it = attributes.find(a.ref_attr_name()); it != attributes.end())
        a.set_type(it->second.type());
      else
        node.mutable_attribute()->DeleteSubrange(i, 1);
    }
  }
}

} // namespace

void GraphBuilder::add_call(Env& env, onnx::NodeProto& node, const Functions::Function& function) {
  if (env.depth >= options_.max_nesting)
    throw Error(ErrorKind::model,
                fmt::format("graphs and function calls are nested over {} levels deep", env.depth),
                how_to_raise("max_nesting"));
  onnx::FunctionProto& f = *function.proto;
  TBX_MODEL(node.input_size() <= f.input_size(), "the function {} has {} inputs, the call gives {}",
            function.label, f.input_size(), node.input_size());
  TBX_MODEL(node.output_size() <= f.output_size(), "the function {} has {} outputs, the call wants {}",
            function.label, f.output_size(), node.output_size());

  auto given = resolve_attributes(env, node);
  BoundAttributes attributes;
  for (const std::string& name : f.attribute())
    if (auto it = given.find(name); it != given.end()) attributes.emplace(name, it->second);
  Env body{.scope = env.scope, .opsets = &function.opsets, .attributes = &attributes};
  for (AttributeProto& fallback : *f.mutable_attribute_proto()) {
    auto it = given.find(fallback.name());
    attributes.emplace(fallback.name(), it != given.end() ? it->second : BoundAttribute{&fallback, &body});
  }
  body.prefix = env.prefix + label_of(node) + "/";
  body.depth = env.depth + 1;
  body.in_subgraph = env.in_subgraph;
  for (int i = 0; i < f.input_size(); ++i)
    define(body, f.input(i), i < node.input_size() ? resolve_input(env, node, i) : -1);

  auto first_own = static_cast<ValueId>(env.scope->graph.values.size());
  add_nodes(body, *f.mutable_node());

  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (name.empty()) continue;
    ValueId id = -1;
    TBX_MODEL(lookup(body, f.output(i), id), "no node of the function {} makes its output {}", function.label,
              shown(f.output(i)));
    // The value takes the name it has outside; one that has a name already there is passed on under a second
    // one.
    bool passed_on = id >= 0 && id < first_own;
    for (int j = 0; j < i; ++j)
      passed_on = passed_on || (!node.output(j).empty() && env.names.at(node.output(j)) == id);
    if (passed_on) {
      add_identity(env, id, name);
    } else {
      if (id >= 0) {
        Value& value = env.scope->graph.at(id);
        value.name = env.prefix + name;
        ValueFacts& facts = env.scope->facts[id];
        add_declared(env, name, facts.type);
        name_unknown_dims(facts.type, symbols_);
        value.type = to_value_type(facts.type, symbols_);
      }
      define(env, name, id);
    }
  }
}

Graph GraphBuilder::build_body(onnx::FunctionProto& function,
                               std::unordered_map<std::string, onnx::AttributeProto>& attributes,
                               const Node& call, const Graph& caller) {
  Scope scope;
  scope.graph.name = function.name();
  scope.graph.context = context_;
  OpsetImports opsets = read_opset_imports(function.opset_import(), "function " + shown(function.name()));
  // Bodies of operators outside ai.onnx name only their own operator set.
  if (auto it = caller.opset_imports.find(""); it != caller.opset_imports.end())
    opsets.emplace("", it->second);
  scope.graph.opset_imports = {opsets.begin(), opsets.end()};
  ir_version_ = onnx::IR_VERSION;
  BoundAttributes bound;
  Env env{.scope = &scope, .opsets = &opsets, .attributes = &bound, .in_operator_body = true};
  for (auto& [name, attribute] : attributes) bound.emplace(name, BoundAttribute{&attribute, &env});
  for (int i = 0; i < function.input_size(); ++i) {
    ValueId id = call.input(i);
    if (id >= 0) {
      const Value& value = caller.at(id);
      id = add_value(env, value.name, to_type_proto(value.type, symbols_.namer()), value.constant);
    }
    define(env, function.input(i), id);
    if (i < static_cast<int>(call.inputs.size())) scope.graph.inputs.push_back(id);
  }
  env.prefix = (call.name.empty() ? call.op_type : call.name) + "/";
  type_references(function, attributes);
  add_nodes(env, *function.mutable_node());
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    ValueId id = -1;
    const std::string& name = function.output(static_cast<int>(i));
    if (call.outputs[i] >= 0)
      TBX_MODEL(lookup(env, name, id), "no node of the function {} makes its output {}",
                shown(function.name()), shown(name));
    scope.graph.outputs.push_back(id);
  }
  scope.graph.origins = std::move(origins_);
  return std::move(scope.graph);
}

void GraphBuilder::add_identity(Env& env, ValueId from, const std::string& name) {
  onnx::TypeProto type = env.scope->facts[from].type;
  ValueId to = add_value(env, name, std::move(type), env.scope->facts[from].constant);
  env.scope->facts[to].data = env.scope->facts[from].data;
  define(env, name, to);
  Graph& graph = env.scope->graph;
  if (graph.at(to).constant) return;
  graph.at(to).producer = static_cast<int>(graph.nodes.size());
  auto import = env.opsets->find("");
  Node node{.name = env.prefix + name,
            .op_type = "Identity",
            .opset = import == env.opsets->end() ? 16 : import->second,
            .inputs = {from},
            .outputs = {to}};
  node.origin = static_cast<int>(origins_.size());
  origins_.push_back(fmt::format("{}{} (Identity)", env.prefix, name));
  graph.nodes.push_back(std::move(node));
}

} // namespace tbx::importer
