// GraphBuilder: protobuf -> Graph, with names resolved, functions inlined, subgraphs built and types inferred
// on the way, each node once.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/budget.h"
#include "extern_kernels/custom_operator.h"
#include "importer/attributes.h"
#include "importer/functions.h"
#include "importer/inference.h"
#include "importer/tensors.h"
#include "importer/types.h"

namespace tbx::importer {

/// A graph under construction.
struct Scope {
  Graph graph;
  Scope* parent = nullptr;                       ///< the graph in whose node attribute this one sits
  std::deque<ValueFacts> facts;                  ///< parallel to graph.values; addresses stay
  std::unordered_map<ValueId, ValueId> captured; ///< value of the parent -> value here
  std::unordered_set<std::string> names;         ///< taken by the file's own values
  std::unordered_map<std::string, int> numbered; ///< the last number that was put behind a name
};

struct Env;
/// An attribute that a function's caller gave, with the surroundings that a graph in it refers to.
struct BoundAttribute {
  onnx::AttributeProto* proto;
  Env* env;
};
using BoundAttributes = std::unordered_map<std::string, BoundAttribute>;

/// Where a list of nodes is read: a graph, or a function body inlined into one.
struct Env {
  Scope* scope = nullptr;
  /// Names not found here are looked up there; none for the main graph and function bodies.
  Env* outer = nullptr;
  std::unordered_map<std::string, ValueId> names; ///< -1: an optional input that the caller left out
  const OpsetImports* opsets = nullptr;
  const BoundAttributes* attributes = nullptr;                      ///< in function bodies
  std::unordered_map<std::string, const onnx::TypeProto*> declared; ///< value_info and outputs
  std::string prefix;                                               ///< of names in function bodies
  int depth = 0;                                                    ///< of subgraphs and calls
  bool in_subgraph = false;
  bool in_operator_body = false; ///< ONNX's own body of an operator: not all of them take all of its types
};

/// For people: many files leave nodes without name, but all have outputs.
inline const std::string& label_of(const onnx::NodeProto& node) {
  return node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
}

class GraphBuilder final : AttributeTensors {
public:
  GraphBuilder(const ImportOptions& options, std::shared_ptr<ir::Context> context, ExternalData external,
               RawData raw = {});

  /// The model's main graph. `model` is used up: its tensors are moved out of it.
  Graph build_model(onnx::ModelProto& model);

  /// A function's body as a graph of its own: inputs and outputs are those of `call` (a node of `caller`),
  /// with -1 where the call leaves one out. `attributes` is what the body may refer to.
  Graph build_body(onnx::FunctionProto& function,
                   std::unordered_map<std::string, onnx::AttributeProto>& attributes, const Node& call,
                   const Graph& caller);

  Symbols& symbols() { return symbols_; }

private:
  struct Subgraph {
    std::shared_ptr<Graph> graph;
    std::vector<onnx::TypeProto> outputs;
  };
  /// The subgraphs of one node: built when inference asks for them (it knows their input types), else
  /// afterwards.
  struct Subgraphs;

  // to_graph.cpp
  void read_declarations(Env& env, const onnx::GraphProto& graph);
  void choose_defaults(const onnx::GraphProto& graph);
  void add_default(const std::string& name, onnx::TypeProto& type, std::shared_ptr<const Tensor> value);
  void read_initializers(Env& env, onnx::GraphProto& graph);
  void read_main_inputs(Env& env, onnx::GraphProto& graph);
  void read_outputs(Env& env, onnx::GraphProto& graph, std::vector<onnx::TypeProto>* types);
  Subgraph build_subgraph(Env& outer, onnx::GraphProto& graph,
                          const std::vector<const onnx::TypeProto*>* inputs);
  void reserve_names(Scope& scope, const onnx::GraphProto& graph);
  ValueId add_value(Env& env, const std::string& name, onnx::TypeProto type,
                    std::shared_ptr<const Tensor> constant = {});
  ValueId capture(Scope& inner, Scope& outer, ValueId id);
  bool lookup(Env& env, const std::string& name, ValueId& id);
  void define(Env& env, const std::string& name, ValueId id);

  // add_node.cpp
  void add_nodes(Env& env, google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes);
  void add_node(Env& env, onnx::NodeProto& node);
  void add_constant(Env& env, onnx::NodeProto& node);
  ValueId resolve_input(Env& env, const onnx::NodeProto& node, int i);
  BoundAttributes resolve_attributes(Env& env, onnx::NodeProto& node);
  Attribute attribute_of(const std::string& name, const BoundAttribute& bound, Subgraphs& subgraphs);
  void add_declared(const Env& env, const std::string& name, onnx::TypeProto& type) const;
  void define_outputs(Env& env, const onnx::NodeProto& proto, Node& node, InferredOutputs inferred);
  const onnx::OpSchema* find_schema(const onnx::NodeProto& node, const std::string& domain, int opset);

  // add_custom.cpp
  std::shared_ptr<const extern_kernels::CustomOperator> find_custom(const Env& env,
                                                                    const onnx::NodeProto& node) const;
  static std::shared_ptr<const extern_kernels::CustomNode>
  custom_node(std::shared_ptr<const extern_kernels::CustomOperator> op, const Node& node,
              const onnx::NodeProto& proto);
  static void infer_custom(const extern_kernels::CustomNode& node, const NodeView& view,
                           std::vector<onnx::TypeProto>& outputs);

  // add_call.cpp
  void add_call(Env& env, onnx::NodeProto& node, const Functions::Function& function);
  void add_identity(Env& env, ValueId from, const std::string& name);

  std::shared_ptr<const Tensor> read(onnx::TensorProto& proto, const std::string& what) override;
  std::shared_ptr<const Tensor> read(onnx::SparseTensorProto& proto, const std::string& what) override;

  const ImportOptions& options_;
  std::shared_ptr<ir::Context> context_;
  Symbols symbols_;
  TensorReader tensors_;
  std::unordered_map<const void*, std::shared_ptr<const Tensor>> tensor_cache_;
  const Functions* functions_ = nullptr;
  std::vector<std::string> origins_;
  Counted memory_; ///< of nodes and values: bodies of functions are copied, and their names grow
  std::unordered_map<std::string, std::shared_ptr<const Tensor>> defaults_; ///< of inputs of the main graph
  int64_t num_nodes_ = 0;
  int64_t ir_version_ = 0;
};

} // namespace tbx::importer
