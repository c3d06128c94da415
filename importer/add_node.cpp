// GraphBuilder: one node of the file at a time, with its attributes, subgraphs and output types.
#include <algorithm>

#include "base/budget.h"
#include "base/error.h"
#include "graph/names.h"
#include "importer/microsoft.h"
#include "importer/node_order.h"
#include "importer/schemas.h"
#include "importer/to_graph.h"

namespace tbx::importer {
namespace {

using onnx::AttributeProto;

/// Operators of before 2018 that ONNX keeps a list of but no schema.
bool is_experimental(const std::string& op) {
  static const std::unordered_set<std::string> ops = {"ATen",
                                                      "Affine",
                                                      "ConstantFill",
                                                      "Crop",
                                                      "DynamicSlice",
                                                      "GRUUnit",
                                                      "GivenTensorFill",
                                                      "ImageScaler",
                                                      "ParametricSoftplus",
                                                      "Scale",
                                                      "ScaledTanh"};
  return ops.contains(op);
}

/// Operators that ONNX Runtime defines in the domain of ONNX: its optimisers write them, LayerNormalization
/// also into models older than ONNX's own.
bool is_of_onnxruntime(const std::string& op) {
  return op == "SimplifiedLayerNormalization" || op == "LayerNormalization";
}

/// The version of its operator set under which a node is to be read.
int opset_of(const Env& env, const std::string& domain) {
  const auto import = env.opsets->find(domain);
  if (import != env.opsets->end()) return import->second;
  if (domain == "com.microsoft") return 1; // ONNX Runtime's own tools leave it out
  if (domain == "ai.onnx.ml")              // as do converters of before 2018; ONNX Runtime takes the newest
    return onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at(domain).second;
  throw Error(ErrorKind::model,
              fmt::format("the model imports no version of the operator set {}", shown(shown_domain(domain))),
              "add it to opset_import");
}

void check_against(const onnx::OpSchema* schema, const onnx::NodeProto& node) {
  if (!schema || schema->deprecated()) return;
  try {
    schema->Verify(node);
  } catch (const std::exception& e) {
    throw_model_error("{}", e.what());
  }
}

/// The first result of an operator without a schema has the type of input `giver`, where that is known.
void take_type(const NodeView& view, int giver, onnx::TypeProto& result) {
  if (giver < 0 || giver >= static_cast<int>(view.inputs.size()) || !view.inputs[giver]) return;
  const onnx::TypeProto& type = view.inputs[giver]->type;
  if (type.has_tensor_type() && is_known(type))
    result.mutable_tensor_type()->set_elem_type(type.tensor_type().elem_type());
}

std::string where(const Env& env, const onnx::NodeProto& node) {
  auto it = env.opsets->find(std::string(canonical_domain(node.domain())));
  return node_text(env.prefix + label_of(node), canonical_domain(node.domain()), node.op_type(),
                   it == env.opsets->end() ? "?" : std::to_string(it->second));
}

} // namespace

struct GraphBuilder::Subgraphs {
  /// What ONNX's inference function of an If, Loop or Scan calls with the types it knows.
  struct Inferencer final : onnx::GraphInferencer {
    Subgraphs* owner = nullptr;
    std::string name;
    std::vector<const onnx::TypeProto*> doInferencing(const std::vector<const onnx::TypeProto*>& inputs,
                                                      const std::vector<const onnx::TensorProto*>&) override {
      std::vector<const onnx::TypeProto*> types;
      for (const auto& type : owner->get(name, &inputs).outputs) types.push_back(&type);
      return types;
    }
  };

  Subgraphs(GraphBuilder& builder, BoundAttributes& attributes, bool of_loop)
      : builder(builder), attributes(attributes), of_loop(of_loop) {}

  Subgraph& get(const std::string& name, const std::vector<const onnx::TypeProto*>* inputs) {
    auto it = built.find(name);
    if (it != built.end()) return it->second;
    BoundAttribute& bound = attributes.at(name);
    onnx::GraphProto& graph = *bound.proto->mutable_g();
    std::vector<onnx::TypeProto> numbers;
    std::vector<const onnx::TypeProto*> types;
    if (inputs) types = *inputs;
    if (of_loop) {
      for (int i = 0; i < std::min<int>({2, graph.input_size(), static_cast<int>(types.size())}); ++i)
        numbers.push_back(loop_number(types[i], graph.input(i).type()));
      for (size_t i = 0; i < numbers.size(); ++i) types[i] = &numbers[i];
    }
    return built.emplace(name, builder.build_subgraph(*bound.env, graph, inputs ? &types : nullptr))
        .first->second;
  }

  /// The iteration number and the condition come from the Loop, in the rank that the body declares.
  static onnx::TypeProto loop_number(const onnx::TypeProto* given, const onnx::TypeProto& declared) {
    onnx::TypeProto type = given ? *given : declared;
    if (!type.has_tensor_type()) return type;
    auto* shape = type.mutable_tensor_type()->mutable_shape();
    shape->clear_dim();
    if (declared.tensor_type().shape().dim_size() == 1) shape->add_dim()->set_dim_value(1);
    return type;
  }

  static onnx::GraphInferencer* inferencer(void* self, const std::string& name) {
    auto* me = static_cast<Subgraphs*>(self);
    auto it = me->attributes.find(name);
    TBX_MODEL(it != me->attributes.end() && it->second.proto->has_g(), "attribute {} is not a graph",
              shown(name));
    auto& slot = me->inferencers[name];
    slot.owner = me;
    slot.name = name;
    return &slot;
  }

  GraphBuilder& builder;
  BoundAttributes& attributes;
  bool of_loop;
  std::unordered_map<std::string, Subgraph> built;
  std::unordered_map<std::string, Inferencer> inferencers;
};

void GraphBuilder::add_nodes(Env& env, google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  for (int i : topological_order(nodes)) {
    onnx::NodeProto& node = nodes[i];
    try {
      add_node(env, node);
    } catch (Error& e) {
      e.add_where(where(env, node));
      throw;
    }
  }
}

void GraphBuilder::add_node(Env& env, onnx::NodeProto& proto) {
  check_stop_often();
  if (++num_nodes_ > options_.max_nodes)
    throw Error(ErrorKind::model, fmt::format("the model has over {} nodes", options_.max_nodes),
                how_to_raise("max_nodes"));
  TBX_MODEL(!proto.op_type().empty(), "the node has no operator");
  auto custom = find_custom(env, proto);
  if (!custom && options_.inline_functions && functions_)
    if (const auto* function = functions_->find(proto)) return add_call(env, proto, *function);

  Node node;
  node.name = env.prefix.empty() ? proto.name() : env.prefix + label_of(proto);
  node.op_type = proto.op_type();
  node.domain = canonical_domain(proto.domain());
  node.opset = opset_of(env, node.domain);
  const onnx::OpSchema* schema = custom ? nullptr : find_schema(proto, node.domain, node.opset);
  check_against(schema, proto);
  TBX_MODEL(proto.output_size() > 0, "the node has no outputs");
  if (node.op_type == "Constant" && node.domain.empty()) return add_constant(env, proto);

  for (int i = 0; i < proto.input_size(); ++i) node.inputs.push_back(resolve_input(env, proto, i));
  BoundAttributes attributes = resolve_attributes(env, proto);
  NodeView view{.proto = proto, .schema = schema};
  for (auto& [name, bound] : attributes) view.attributes.emplace(name, bound.proto);
  for (ValueId id : node.inputs) view.inputs.push_back(id < 0 ? nullptr : &env.scope->facts[id]);
  Subgraphs subgraphs(*this, attributes, node.op_type == "Loop" && node.domain.empty());
  view.subgraph = &Subgraphs::inferencer;
  view.owner = &subgraphs;
  // A branch that is never taken may well hold shapes that do not fit: exporters write such Ifs.
  InferredOutputs inferred =
      infer_outputs(view, /*strict=*/!env.in_subgraph, /*check_types=*/!env.in_operator_body);

  for (auto& [name, bound] : attributes) node.attributes.emplace(name, attribute_of(name, bound, subgraphs));
  if (!schema && !custom && options_.type_giver)
    take_type(view, options_.type_giver(node), inferred.types[0]);
  if (custom) {
    node.custom = custom_node(std::move(custom), node, proto);
    infer_custom(*node.custom, view, inferred.types);
  }
  define_outputs(env, proto, node, std::move(inferred));
  node.origin = static_cast<int>(origins_.size());
  origins_.push_back(fmt::format("{}{} ({})", env.prefix, label_of(proto), node.op_type));
  memory_.add(static_cast<int64_t>(sizeof node + node.name.size() + origins_.back().size()));
  env.scope->graph.nodes.push_back(std::move(node));
}

Attribute GraphBuilder::attribute_of(const std::string& name, const BoundAttribute& bound,
                                     Subgraphs& subgraphs) {
  AttributeProto& p = *bound.proto;
  if (p.type() == AttributeProto::GRAPH) {
    TBX_MODEL(p.has_g(), "attribute {} has no graph", shown(name));
    return subgraphs.get(name, nullptr).graph;
  }
  if (p.type() != AttributeProto::GRAPHS) return to_attribute(p, *this, symbols_, options_);
  std::vector<std::shared_ptr<Graph>> graphs;
  for (auto& g : *p.mutable_graphs()) graphs.push_back(build_subgraph(*bound.env, g, nullptr).graph);
  return graphs;
}

/// What the model says of the type of a value beside what its node says. ModelError where these differ.
void GraphBuilder::add_declared(const Env& env, const std::string& name, onnx::TypeProto& type) const {
  const auto it = env.declared.find(name);
  if (it == env.declared.end()) return;
  const onnx::TypeProto declared = declared_type(*it->second, options_, "value " + shown(name));
  if (!complete(type, declared) && is_known(type) && is_known(declared))
    throw declared_otherwise(name, declared, type);
}

/// The values of the node that the graph gets next.
void GraphBuilder::define_outputs(Env& env, const onnx::NodeProto& proto, Node& node,
                                  InferredOutputs inferred) {
  const int index = static_cast<int>(env.scope->graph.nodes.size());
  for (int i = 0; i < proto.output_size(); ++i) {
    const std::string& name = proto.output(i);
    if (name.empty()) {
      node.outputs.push_back(-1);
      continue;
    }
    onnx::TypeProto& type = inferred.types[i];
    add_declared(env, name, type);
    ValueId id = add_value(env, name, std::move(type));
    env.scope->graph.at(id).producer = index;
    env.scope->facts[id].data = std::move(inferred.data[i]);
    define(env, name, id);
    node.outputs.push_back(id);
  }
}

const onnx::OpSchema* GraphBuilder::find_schema(const onnx::NodeProto& node, const std::string& domain,
                                                int opset) {
  const std::string& op = node.op_type();
  const auto* schema = find_onnx_schema(domain, op, opset);
  if (!schema) schema = find_microsoft_schema(domain, op);
  if (schema || !is_onnx_domain(domain) || is_experimental(op) || is_of_onnxruntime(op)) return schema;
  if (const auto* newest = find_onnx_schema(domain, op))
    throw Error(ErrorKind::model,
                fmt::format("the operator {} is not in version {} of {}; its newest form is of version {}",
                            shown(op), opset, shown_domain(domain), newest->since_version()),
                "correct the model's opset_import");
  throw_model_error("there is no operator {} in {}", shown(op), shown_domain(domain));
}

ValueId GraphBuilder::resolve_input(Env& env, const onnx::NodeProto& node, int i) {
  const std::string& name = node.input(i);
  ValueId id = -1;
  if (name.empty() || lookup(env, name, id)) return id;
  throw_model_error("input {} does not exist: no node, input or initializer of this name", shown(name));
}

BoundAttributes GraphBuilder::resolve_attributes(Env& env, onnx::NodeProto& node) {
  BoundAttributes result;
  for (AttributeProto& attribute : *node.mutable_attribute()) {
    TBX_MODEL(!attribute.name().empty(), "an attribute has no name");
    BoundAttribute bound{&attribute, &env};
    if (!attribute.ref_attr_name().empty()) {
      TBX_MODEL(env.attributes, "attribute {} refers to an attribute of a function, but stands in none",
                shown(attribute.name()));
      auto it = env.attributes->find(attribute.ref_attr_name());
      if (it == env.attributes->end()) continue; // the caller left it out, so it is left out here
      TBX_MODEL(it->second.proto->type() == attribute.type(),
                "attribute {} refers to {}, which has another type", shown(attribute.name()),
                shown(attribute.ref_attr_name()));
      bound = it->second;
    }
    TBX_MODEL(result.emplace(attribute.name(), bound).second, "attribute {} is given twice",
              shown(attribute.name()));
  }
  return result;
}

void GraphBuilder::add_constant(Env& env, onnx::NodeProto& node) {
  auto attributes = resolve_attributes(env, node);
  TBX_MODEL(attributes.size() == 1, "a Constant needs one attribute that is its value, it has {}",
            attributes.size());
  AttributeProto& p = *attributes.begin()->second.proto;
  const std::string what = "of Constant " + shown(node.output(0));
  std::shared_ptr<const Tensor> value;
  auto make = [&](DType dtype, std::vector<int64_t> dims, const auto* data) {
    Tensor t = Tensor::make(dtype, std::move(dims));
    std::copy_n(data, t.numel(), reinterpret_cast<std::remove_cvref_t<decltype(*data)>*>(t.mutable_data()));
    value = std::make_shared<Tensor>(std::move(t));
  };
  switch (p.type()) {
  case AttributeProto::TENSOR: value = read(*p.mutable_t(), what); break;
  case AttributeProto::SPARSE_TENSOR: value = read(*p.mutable_sparse_tensor(), what); break;
  case AttributeProto::INT: {
    int64_t v = p.i();
    make(DType::i64, {}, &v);
    break;
  }
  case AttributeProto::FLOAT: {
    float v = p.f();
    make(DType::f32, {}, &v);
    break;
  }
  case AttributeProto::INTS: make(DType::i64, {p.ints_size()}, p.ints().data()); break;
  case AttributeProto::FLOATS: make(DType::f32, {p.floats_size()}, p.floats().data()); break;
  case AttributeProto::STRING: value = std::make_shared<Tensor>(Tensor::of_strings({}, {p.s()})); break;
  case AttributeProto::STRINGS:
    value = std::make_shared<Tensor>(
        Tensor::of_strings({p.strings_size()}, {p.strings().begin(), p.strings().end()}));
    break;
  default: throw_model_error("a Constant's value cannot be an attribute of type {}", int{p.type()});
  }
  define(env, node.output(0), add_value(env, node.output(0), tensor_type(*value), value));
}

} // namespace tbx::importer
