#include "graph/function_body.h"

#include <onnx/defs/parser.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "graph/names.h"
#include "importer/microsoft.h"
#include "importer/schemas.h"
#include "importer/to_graph.h"

namespace tbx {
namespace {

using namespace importer;

const onnx::OpSchema* find_schema(std::string_view domain, std::string_view op_type, int opset) {
  const std::string name(op_type), owner(canonical_domain(domain));
  const auto* schema = find_onnx_schema(owner, name, opset);
  return schema ? schema : find_microsoft_schema(owner, name);
}

bool has_graphs(const Node& node) {
  return std::any_of(node.attributes.begin(), node.attributes.end(), [](const auto& a) {
    return std::holds_alternative<std::shared_ptr<Graph>>(a.second) ||
           std::holds_alternative<std::vector<std::shared_ptr<Graph>>>(a.second);
  });
}

/// ONNX's body of Attention leaves the size of a head of keys and values to Reshape, which divides by the
/// batch of the queries: an empty batch leaves it open. The width of each says it.
void give_head_sizes(onnx::FunctionProto& body) {
  int at = -1;
  for (int i = 0; i < body.node_size(); ++i)
    if (body.node(i).output_size() == 1 && body.node(i).output(0) == "KVIntermediateShape") at = i;
  if (at < 0) return; // heads are a dimension of the inputs
  std::vector<onnx::NodeProto> nodes(body.node().begin(), body.node().begin() + at);
  for (const char* x : {"K", "V"}) {
    const std::string name(x);
    onnx::NodeProto width, size, shape = body.node(at);
    width.set_op_type("Shape");
    width.add_input(name);
    width.add_output(name + "Width");
    onnx::AttributeProto& start = *width.add_attribute();
    start.set_name("start");
    start.set_type(onnx::AttributeProto::INT);
    start.set_i(2);
    size.set_op_type("Div");
    size.add_input(name + "Width");
    size.add_input("KVNumHeadsAttr");
    size.add_output(name + "PerHead");
    shape.set_input(shape.input_size() - 1, name + "PerHead");
    shape.set_output(0, name + "IntermediateShape");
    for (const onnx::NodeProto& n : {width, size, shape}) nodes.push_back(n);
  }
  for (int i = at + 1; i < body.node_size(); ++i) {
    nodes.push_back(body.node(i));
    onnx::NodeProto& node = nodes.back();
    if (node.op_type() == "Reshape" && node.input(1) == "KVIntermediateShape")
      node.set_input(1, node.input(0) + "IntermediateShape");
  }
  body.mutable_node()->Assign(nodes.begin(), nodes.end());
}

/// The newest body made for operator sets up to `opset`. It is read under the version it was made for:
/// operators in it may have changed since.
std::optional<onnx::FunctionProto> body_of(const onnx::OpSchema& schema, const onnx::NodeProto& node,
                                           const std::vector<onnx::TypeProto>& input_types, int opset) {
  if (const onnx::FunctionProto* body = schema.GetFunction(opset)) return *body;
  int version = -1;
  for (int v : schema.context_dependent_function_opset_versions())
    if (v <= opset) version = std::max(version, v);
  if (version < 0) return std::nullopt;
  onnx::FunctionBodyBuildContextImpl context(node, input_types);
  onnx::FunctionProto body;
  if (!schema.BuildContextDependentFunction(context, body, version)) return std::nullopt;
  if (schema.Name() == "Attention") give_head_sizes(body);
  return body;
}

/// The nodes come from the node whose body they are, which is for the caller to say.
void forget_origins(Graph& g) {
  g.origins.clear();
  for (Node& node : g.nodes) {
    node.origin = -1;
    for_each_body(node, forget_origins);
  }
}

} // namespace

std::optional<int> schema_since_version(std::string_view domain, std::string_view op_type, int opset) {
  const auto* schema = find_schema(domain, op_type, opset);
  return schema ? std::optional<int>(schema->since_version()) : std::nullopt;
}

std::vector<std::tuple<std::string, std::string, int>> operators_with_body() {
  std::vector<std::tuple<std::string, std::string, int>> found;
  for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas_with_history())
    if (schema.HasFunction() || schema.HasContextDependentFunction())
      found.emplace_back(schema.domain(), schema.Name(), schema.since_version());
  for (const auto& [name, schema] : microsoft_schemas())
    if (schema.HasContextDependentFunction())
      found.emplace_back(schema.domain(), name, schema.since_version());
  return found;
}

bool has_function_body(const Node& node) {
  const auto* schema = find_schema(node.domain, node.op_type, node.opset);
  return schema && (schema->HasFunction() || schema->HasContextDependentFunction());
}

std::optional<Graph> expand_function(const Graph& graph, const Node& node) {
  if (!has_function_body(node) || has_graphs(node)) return std::nullopt;
  const auto* schema = find_schema(node.domain, node.op_type, node.opset);

  static const ImportOptions options;
  GraphBuilder builder(options, graph.context, {});
  DimNamer dim_name = builder.symbols().namer();
  onnx::NodeProto proto;
  proto.set_op_type(node.op_type);
  proto.set_domain(node.domain);
  proto.set_name(node.name);
  std::vector<onnx::TypeProto> input_types;
  for (ValueId id : node.inputs) {
    proto.add_input(id < 0 ? "" : "in" + std::to_string(proto.input_size()));
    input_types.push_back(id < 0 ? onnx::TypeProto() : to_type_proto(graph.at(id).type, dim_name));
  }
  for (ValueId id : node.outputs) proto.add_output(id < 0 ? "" : "out" + std::to_string(proto.output_size()));
  std::unordered_map<std::string, onnx::AttributeProto> attributes;
  for (const auto& [name, value] : node.attributes) {
    auto attribute = to_proto(name, value, dim_name);
    *proto.add_attribute() = attribute;
    attributes.emplace(name, std::move(attribute));
  }
  for (const auto& [name, attribute] : schema->attributes())
    if (attribute.default_value.type() != onnx::AttributeProto::UNDEFINED)
      attributes.emplace(name, attribute.default_value);

  try {
    auto body = body_of(*schema, proto, input_types, node.opset);
    if (!body) return std::nullopt;
    if (body->input_size() < static_cast<int>(node.inputs.size()) ||
        body->output_size() < static_cast<int>(node.outputs.size()))
      return std::nullopt;
    Graph result = builder.build_body(*body, attributes, node, graph);
    forget_origins(result);
    verify(result);
    return result;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) { // of ONNX's builders, when types or attributes do not suit them
    throw_model_error("ONNX gives no body for {}: {}", shown(node.op_type), e.what());
  }
}

Graph body_of_text(const Graph& graph, const Node& node, const std::string& text) {
  onnx::FunctionProto function;
  const auto status = onnx::OnnxParser::Parse(function, text.c_str());
  TBX_INTERNAL(status.IsOK());
  static const ImportOptions options;
  GraphBuilder builder(options, graph.context, {});
  std::unordered_map<std::string, onnx::AttributeProto> attributes;
  Graph result = builder.build_body(function, attributes, node, graph);
  forget_origins(result);
  verify(result);
  return result;
}

bool inline_function(Graph& g, size_t i) {
  auto body = expand_function(g, g.nodes[i]);
  return body && inline_function(g, i, *body);
}

bool inline_function(Graph& g, size_t i, const Graph& given) {
  const Graph* body = &given;
  const Node call = g.nodes[i];
  std::unordered_map<ValueId, ValueId> to;
  for (size_t k = 0; k < body->inputs.size(); ++k)
    if (body->inputs[k] >= 0) to[body->inputs[k]] = call.input(k);
  for (size_t k = 0; k < body->outputs.size() && k < call.outputs.size(); ++k) {
    // An output that is an input of the body, or twice an output, would need an Identity.
    if (call.outputs[k] < 0 || body->outputs[k] < 0) continue;
    if (!to.emplace(body->outputs[k], call.outputs[k]).second) return false;
    if (body->at(body->outputs[k]).constant)
      g.at(call.outputs[k]).constant = body->at(body->outputs[k]).constant;
  }
  auto place = [&](ValueId v) {
    if (v < 0) return v;
    auto [it, fresh] = to.try_emplace(v, static_cast<ValueId>(g.values.size()));
    if (fresh) g.values.push_back(body->at(v));
    return it->second;
  };
  std::vector<Node> nodes;
  for (Node node : body->nodes) {
    for (ValueId& v : node.inputs) v = place(v);
    for (ValueId& v : node.outputs) v = place(v);
    for_each_capture(node, [&](Graph::Capture& c) { c.outer = place(c.outer); });
    node.origin = call.origin;
    node.name = call.name + "/" + node.name;
    nodes.push_back(std::move(node));
  }
  g.nodes.erase(g.nodes.begin() + static_cast<std::ptrdiff_t>(i));
  g.nodes.insert(g.nodes.begin() + static_cast<std::ptrdiff_t>(i), std::make_move_iterator(nodes.begin()),
                 std::make_move_iterator(nodes.end()));
  set_producers(g);
  return true;
}

} // namespace tbx
