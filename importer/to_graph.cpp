#include "importer/to_graph.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/budget.h"
#include "base/error.h"
#include "base/shown.h"
#include "graph/metadata.h"
#include "graph/names.h"

namespace tbx::importer {
namespace {

bool is_new_to_us(const std::string& domain, int version) {
  const auto& last = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  auto it = last.find(domain);
  return it != last.end() && version > it->second.second;
}

void check_versions(const onnx::ModelProto& model, const OpsetImports& opsets) {
  TBX_MODEL(model.has_ir_version() && model.ir_version() > 0,
            "the model has no IR version: is it an ONNX file?");
  if (model.ir_version() < 3)
    throw Error(ErrorKind::unsupported,
                fmt::format("the model has IR version {} of 2017", model.ir_version()),
                "convert it with onnx.version_converter");
  if (model.ir_version() > onnx::IR_VERSION)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("the model has IR version {}, newer than {}", model.ir_version(), int{onnx::IR_VERSION}),
        "export it for an older version of ONNX, or use a newer tensorbox");
  TBX_MODEL(!opsets.empty(), "the model imports no operator set");
  for (const auto& [domain, version] : opsets)
    if (is_new_to_us(domain, version))
      throw Error(
          ErrorKind::unsupported,
          fmt::format("the model imports version {} of the operator set {}, newer than {}", version,
                      shown_domain(domain),
                      onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map().at(domain).second),
          "export it for an older operator set, or use a newer tensorbox");
}

std::map<std::string, std::string> read_metadata(const onnx::ModelProto& model) {
  std::map<std::string, std::string> result;
  for (const auto& entry : model.metadata_props())
    result[std::string(kCustomMetadata) + entry.key()] = entry.value();
  auto put = [&](const char* key, const std::string& value) {
    if (!value.empty()) result[key] = value;
  };
  put("producer_name", model.producer_name());
  put("producer_version", model.producer_version());
  put("domain", model.domain());
  put("doc_string", model.doc_string());
  put("graph_description", model.graph().doc_string());
  put("model_version", model.has_model_version() ? std::to_string(model.model_version()) : "");
  put("ir_version", std::to_string(model.ir_version()));
  return result;
}

/// The sizes of a tensor type, -1 where they are no numbers; none where it has no shape.
std::vector<int64_t> numbers_in_shape(const onnx::TypeProto& type) {
  std::vector<int64_t> sizes;
  for (const auto& dim : type.tensor_type().shape().dim())
    sizes.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : -1);
  return sizes;
}

onnx::TypeProto::Tensor* tensor_of(onnx::TypeProto& type) {
  return type.has_tensor_type() ? type.mutable_tensor_type() : nullptr;
}

void add_dim_names(const onnx::TypeProto& type, std::set<std::string>& names) {
  auto add = [&](const auto& tensor) {
    for (const auto& dim : tensor.shape().dim())
      if (!dim.dim_param().empty()) names.insert(dim.dim_param());
  };
  if (type.has_tensor_type()) add(type.tensor_type());
  if (type.has_sparse_tensor_type()) add(type.sparse_tensor_type());
  if (type.has_sequence_type()) add_dim_names(type.sequence_type().elem_type(), names);
  if (type.has_optional_type()) add_dim_names(type.optional_type().elem_type(), names);
  if (type.has_map_type()) add_dim_names(type.map_type().value_type(), names);
}

/// Sizes are given to dimensions that the model has: a misspelt name would change nothing, silently.
/// Of dimension `i` of an input, where the model has none. It is part of messages, which are lines.
std::string name_of_size(const std::string& input, int i) {
  const bool plain =
      std::none_of(input.begin(), input.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  return fmt::format("{}_dim{}", plain ? input : shown(input), i);
}

void check_dim_overrides(const onnx::GraphProto& graph, const ImportOptions& options) {
  if (options.dim_overrides.empty()) return;
  std::set<std::string> of_inputs, others;
  for (const auto& input : graph.input()) add_dim_names(input.type(), of_inputs);
  for (const auto& output : graph.output()) add_dim_names(output.type(), others);
  for (const auto& value : graph.value_info()) add_dim_names(value.type(), others);
  for (const auto& [name, size] : options.dim_overrides) {
    TBX_MODEL(of_inputs.contains(name) || others.contains(name),
              "a size is given for the dimension {}, which the model does not have; {}", shown(name),
              of_inputs.empty() ? "its inputs have fixed sizes"
                                : fmt::format("its inputs have: {}", fmt::join(of_inputs, ", ")));
    TBX_MODEL(size >= 0, "dimension {} is given the size {}", shown(name), size);
  }
}

/// What no process can address is refused before anything computes with it.
void check_size(const onnx::TypeProto& type, const std::string& name) {
  constexpr int64_t kMaxBytes = int64_t{1} << 47;
  if (!type.has_tensor_type()) return;
  constexpr int kMaxRank = 1024; // every node hands the shapes of its inputs on
  TBX_MODEL(type.tensor_type().shape().dim_size() <= kMaxRank, "{} would have rank {}; the limit is {}",
            shown(name), type.tensor_type().shape().dim_size(), kMaxRank);
  int64_t bytes = 1;
  std::vector<std::string> shape;
  for (const auto& d : type.tensor_type().shape().dim()) {
    shape.push_back(d.has_dim_value() ? std::to_string(d.dim_value()) : "?");
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(d.dim_value(), 1), &bytes)) bytes = kMaxBytes;
  }
  TBX_MODEL(bytes < kMaxBytes, "{} would have the shape [{}]: no machine holds that", shown(name),
            fmt::join(shape, ", "));
}

} // namespace

GraphBuilder::GraphBuilder(const ImportOptions& options, std::shared_ptr<ir::Context> context,
                           ExternalData external, RawData raw)
    : options_(options), context_(std::move(context)), symbols_(*context_),
      tensors_(options, std::move(external), std::move(raw)) {}

Graph GraphBuilder::build_model(onnx::ModelProto& model) {
  OpsetImports opsets = read_opset_imports(model.opset_import(), "the model");
  check_versions(model, opsets);
  check_dim_overrides(model.graph(), options_);
  Functions functions(model, options_);
  functions_ = &functions;
  ir_version_ = model.ir_version();

  Scope scope;
  Env env{.scope = &scope, .opsets = &opsets};
  onnx::GraphProto& graph = *model.mutable_graph();
  scope.graph.name = graph.name();
  scope.graph.context = context_;
  scope.graph.opset_imports = {opsets.begin(), opsets.end()};
  scope.graph.metadata = read_metadata(model);
  reserve_names(scope, graph);
  choose_defaults(graph);
  read_initializers(env, graph);
  read_main_inputs(env, graph);
  read_declarations(env, graph);
  add_nodes(env, *graph.mutable_node());
  read_outputs(env, graph, nullptr);
  scope.graph.origins = std::move(origins_);
  return std::move(scope.graph);
}

void GraphBuilder::reserve_names(Scope& scope, const onnx::GraphProto& graph) {
  for (const auto& input : graph.input()) scope.names.insert(input.name());
  for (const auto& tensor : graph.initializer()) scope.names.insert(tensor.name());
  for (const auto& node : graph.node())
    for (const auto& output : node.output()) scope.names.insert(output);
}

void GraphBuilder::read_declarations(Env& env, const onnx::GraphProto& graph) {
  for (const auto& info : graph.value_info()) env.declared.emplace(info.name(), &info.type());
  for (const auto& info : graph.output()) env.declared.emplace(info.name(), &info.type());
}

void GraphBuilder::read_initializers(Env& env, onnx::GraphProto& graph) {
  auto add = [&](auto& proto, const std::string& name) {
    TBX_MODEL(!name.empty(), "an initializer of the graph {} has no name", shown(graph.name()));
    auto tensor = read(proto, shown(name));
    if (auto it = defaults_.find(name); it != defaults_.end() && !env.in_subgraph) {
      TBX_MODEL(!it->second, "the graph {} has two initializers {}", shown(graph.name()), shown(name));
      it->second = tensor;
      return;
    }
    define(env, name, add_value(env, name, tensor_type(*tensor), tensor));
  };
  for (auto& tensor : *graph.mutable_initializer()) add(tensor, tensor.name());
  for (auto& tensor : *graph.mutable_sparse_initializer()) add(tensor, tensor.values().name());
}

// An input that is also an initializer is a constant unless the caller wants to override it: hardly anybody
// does, before IR version 4 every initializer had to be listed so, and weights that are no constants are
// slow.
void GraphBuilder::choose_defaults(const onnx::GraphProto& graph) {
  if (options_.overridable.empty()) return;
  std::unordered_set<std::string> inputs, both;
  for (const auto& input : graph.input()) inputs.insert(input.name());
  auto add = [&](const std::string& name) {
    if (inputs.contains(name)) both.insert(name);
  };
  for (const auto& tensor : graph.initializer()) add(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) add(tensor.values().name());
  for (const std::string& name : options_.overridable) {
    TBX_MODEL(both.contains(name),
              "option overridable: {} is no initializer that the model declares as an input", shown(name));
    defaults_[name] = nullptr;
  }
}

namespace {

using NamedTypes = std::vector<std::pair<std::string, onnx::TypeProto>>;

/// Sizes below 0 stay as the model declares them. `what`: the input, for errors.
void give_shape(onnx::TypeProto& type, const std::vector<int64_t>& sizes, const std::string& what) {
  auto* tensor = tensor_of(type);
  TBX_MODEL(tensor, "{} is not a tensor, so it cannot be given a shape", what);
  const bool same_rank = !tensor->has_shape() || tensor->shape().dim_size() == static_cast<int>(sizes.size());
  TBX_MODEL(same_rank, "{} has rank {}, but was given the shape [{}]", what, tensor->shape().dim_size(),
            fmt::join(sizes, ", "));
  auto* shape = tensor->mutable_shape();
  for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
    auto* dim = i < shape->dim_size() ? shape->mutable_dim(i) : shape->add_dim();
    if (sizes[i] >= 0) dim->set_dim_value(sizes[i]);
  }
}

/// Symbols for all dimensions of inputs: first the names that the model itself uses, then those of dimensions
/// that it leaves open, which must be other ones.
void name_open_dims(NamedTypes& inputs, Symbols& symbols) {
  auto for_each_dim = [&](auto fn) {
    for (auto& [name, type] : inputs)
      if (auto* tensor = tensor_of(type); tensor && tensor->has_shape())
        for (int i = 0; i < tensor->shape().dim_size(); ++i)
          fn(name, i, *tensor->mutable_shape()->mutable_dim(i));
  };
  for_each_dim([&](const std::string&, int, auto& dim) {
    if (dim.has_dim_param()) symbols.of_input(dim.dim_param());
  });
  for_each_dim([&](const std::string& name, int i, auto& dim) {
    if (dim.has_dim_value() || dim.has_dim_param()) return;
    std::string symbol = name_of_size(name, i);
    while (symbols.is_input(symbol)) symbol += '_';
    symbols.of_input(symbol);
    dim.set_dim_param(symbol);
  });
}

} // namespace

void GraphBuilder::read_main_inputs(Env& env, onnx::GraphProto& graph) {
  NamedTypes inputs;
  std::unordered_set<std::string> seen;
  for (const auto& input : graph.input()) {
    const std::string what = "input " + shown(input.name());
    TBX_MODEL(!input.name().empty(), "an input of the model has no name");
    TBX_MODEL(seen.insert(input.name()).second, "{} is declared twice", what);
    onnx::TypeProto type = declared_type(input.type(), options_, what);
    auto constant = env.names.find(input.name());
    auto chosen = defaults_.find(input.name());
    if (constant != env.names.end() || chosen != defaults_.end()) {
      const bool is_constant = constant != env.names.end();
      auto value = is_constant ? env.scope->graph.at(constant->second).constant : chosen->second;
      auto* tensor = tensor_of(type);
      TBX_MODEL(!tensor || tensor->elem_type() == 0 || tensor->elem_type() == static_cast<int>(value->dtype),
                "{} is declared with another type than its initializer", what);
      if (!is_known(type)) type = tensor_type(*value);
      add_default(input.name(), type, std::move(value));
      if (is_constant) continue;
    }
    TBX_MODEL(is_known(type), "{} has no type", what);
    auto given = options_.input_shapes.find(input.name());
    if (given != options_.input_shapes.end()) give_shape(type, given->second, what);
    inputs.emplace_back(input.name(), std::move(type));
  }
  for (const auto& [name, dims] : options_.input_shapes)
    TBX_MODEL(seen.contains(name), "a shape was given for {}, which is not an input of the model",
              shown(name));
  name_open_dims(inputs, symbols_);
  for (auto& [name, type] : inputs) {
    ValueId id = add_value(env, name, std::move(type));
    define(env, name, id);
    env.scope->graph.inputs.push_back(id);
  }
}

void GraphBuilder::add_default(const std::string& name, onnx::TypeProto& type,
                               std::shared_ptr<const Tensor> value) {
  const auto* tensor = tensor_of(type);
  const bool ranked = tensor && tensor->has_shape();
  std::vector<std::string> dims;
  for (int i = 0; ranked && i < tensor->shape().dim_size(); ++i) {
    const auto& dim = tensor->shape().dim(i);
    dims.push_back(dim.has_dim_value()   ? std::to_string(dim.dim_value())
                   : dim.has_dim_param() ? dim.dim_param()
                                         : name_of_size(name, i));
  }
  if (defaults_.contains(name)) { // declared shapes of constants are often stale; this one will be used
    bool fits = tensor && (!ranked || dims.size() == value->dims.size());
    for (size_t i = 0; fits && i < dims.size(); ++i) {
      const auto& dim = tensor->shape().dim(static_cast<int>(i));
      fits = !dim.has_dim_value() || dim.dim_value() == value->dims[i];
    }
    TBX_MODEL(fits, "input {} is declared with the shape [{}], but its initializer has the shape [{}]",
              shown(name), fmt::join(dims, ", "), fmt::join(value->dims, ", "));
  }
  if (options_.defaults)
    options_.defaults->push_back({name, std::move(value), std::move(dims), ranked, ir_version_ >= 4});
}

void GraphBuilder::read_outputs(Env& env, onnx::GraphProto& graph, std::vector<onnx::TypeProto>* types) {
  for (const auto& output : graph.output()) {
    ValueId id = -1;
    TBX_MODEL(lookup(env, output.name(), id), "no node makes the output {} of the graph {}",
              shown(output.name()), shown(graph.name()));
    TBX_MODEL(id >= 0, "output {} of a function's subgraph is an input that the caller left out",
              shown(output.name()));
    ValueFacts& facts = env.scope->facts[id];
    onnx::TypeProto declared = declared_type(output.type(), options_, "output " + shown(output.name()));
    if (is_known(facts.type) && is_known(declared)) {
      onnx::TypeProto have = facts.type;
      if (!complete(have, declared)) {
        const Graph& g = env.scope->graph;
        Error e = declared_otherwise(output.name(), declared, have);
        if (g.at(id).producer >= 0) e.set_where(describe(g, g.nodes[g.at(id).producer]));
        throw e;
      }
    }
    env.scope->graph.outputs.push_back(id);
    if (env.in_subgraph) env.scope->graph.declared_sizes.push_back(numbers_in_shape(declared));
    if (types) types->push_back(facts.type);
  }
}

GraphBuilder::Subgraph GraphBuilder::build_subgraph(Env& outer, onnx::GraphProto& graph,
                                                    const std::vector<const onnx::TypeProto*>* input_types) {
  if (outer.depth >= options_.max_nesting)
    throw Error(ErrorKind::model,
                fmt::format("graphs and function calls are nested over {} levels deep", outer.depth),
                how_to_raise("max_nesting"));
  Scope scope;
  scope.parent = outer.scope;
  scope.graph.name = graph.name();
  scope.graph.context = context_;
  Env env{.scope = &scope, .outer = &outer, .opsets = outer.opsets, .attributes = outer.attributes};
  env.depth = outer.depth + 1;
  env.in_subgraph = true;
  scope.graph.opset_imports = {env.opsets->begin(), env.opsets->end()};
  reserve_names(scope, graph);
  read_initializers(env, graph);
  // Where the operator does not say what it gives, the body does, and its sizes are no business of the
  // caller.
  const ImportOptions own;
  const ImportOptions& of_inputs = input_types ? options_ : own;
  for (const auto& input : graph.input()) {
    const std::string what = "subgraph input " + shown(input.name());
    TBX_MODEL(!input.name().empty(), "an input of the subgraph {} has no name", shown(graph.name()));
    if (env.names.contains(input.name())) {
      TBX_MODEL(ir_version_ < 4, "{} is also an initializer or declared twice", what);
      continue;
    }
    size_t i = scope.graph.inputs.size();
    onnx::TypeProto type;
    if (input_types && i < input_types->size() && (*input_types)[i]) type = *(*input_types)[i];
    TBX_MODEL(complete(type, declared_type(input.type(), of_inputs, what)) || !input_types,
              "{} is declared with another type than the operator gives it", what);
    ValueId id = add_value(env, input.name(), std::move(type));
    define(env, input.name(), id);
    scope.graph.inputs.push_back(id);
  }
  TBX_MODEL(!input_types || input_types->size() == scope.graph.inputs.size(),
            "the subgraph {} has {} inputs, but its operator gives {}", shown(graph.name()),
            scope.graph.inputs.size(), input_types->size());
  read_declarations(env, graph);
  add_nodes(env, *graph.mutable_node());
  Subgraph result;
  read_outputs(env, graph, &result.outputs);
  result.graph = std::make_shared<Graph>(std::move(scope.graph));
  return result;
}

ValueId GraphBuilder::add_value(Env& env, const std::string& name, onnx::TypeProto type,
                                std::shared_ptr<const Tensor> constant) {
  Scope& scope = *env.scope;
  if (!constant) check_size(type, name);
  name_unknown_dims(type, symbols_);
  Value value;
  value.name = name;
  if (!env.prefix.empty()) {
    value.name = env.prefix + name;
    if (!scope.names.insert(value.name).second) {
      int& number = scope.numbered.try_emplace(value.name, 1).first->second;
      do value.name = fmt::format("{}{}_{}", env.prefix, name, ++number);
      while (!scope.names.insert(value.name).second);
    }
  }
  memory_.add(static_cast<int64_t>(sizeof(Value) + sizeof(ValueFacts) + 2 * value.name.size()));
  value.type = to_value_type(type, symbols_);
  value.constant = constant;
  auto id = static_cast<ValueId>(scope.graph.values.size());
  scope.graph.values.push_back(std::move(value));
  scope.facts.push_back({.type = std::move(type), .constant = std::move(constant)});
  return id;
}

void GraphBuilder::define(Env& env, const std::string& name, ValueId id) {
  TBX_MODEL(env.names.emplace(name, id).second, "the name {} is given to two values", shown(name));
}

bool GraphBuilder::lookup(Env& env, const std::string& name, ValueId& id) {
  if (auto it = env.names.find(name); it != env.names.end()) {
    id = it->second;
    return true;
  }
  if (!env.outer || !lookup(*env.outer, name, id)) return false;
  if (id >= 0) id = capture(*env.scope, *env.outer->scope, id);
  env.names.emplace(name, id);
  return true;
}

/// Makes value `id` of `outer` visible in `inner`, through all graphs between them.
ValueId GraphBuilder::capture(Scope& inner, Scope& outer, ValueId id) {
  if (&inner == &outer) return id;
  TBX_INTERNAL(inner.parent);
  id = capture(*inner.parent, outer, id);
  auto [it, added] = inner.captured.try_emplace(id);
  if (!added) return it->second;
  const Value& value = inner.parent->graph.at(id);
  const ValueFacts& facts = inner.parent->facts[id];
  it->second = static_cast<ValueId>(inner.graph.values.size());
  inner.graph.captures.push_back({.inner = it->second, .outer = id});
  inner.facts.push_back({.type = facts.type, .data = facts.data, .constant = facts.constant});
  Value copy = value;
  copy.producer = -1;
  inner.graph.values.push_back(std::move(copy));
  return it->second;
}

std::shared_ptr<const Tensor> GraphBuilder::read(onnx::TensorProto& proto, const std::string& what) {
  auto& tensor = tensor_cache_[&proto];
  if (!tensor) tensor = tensors_.read(proto, what);
  return tensor;
}

std::shared_ptr<const Tensor> GraphBuilder::read(onnx::SparseTensorProto& proto, const std::string& what) {
  auto& tensor = tensor_cache_[&proto];
  if (!tensor) tensor = tensors_.read(proto, what);
  return tensor;
}

} // namespace tbx::importer
