// Graph: a verified ONNX graph with typed values, free of protobuf.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/tensor.h"
#include "ir/expr.h"

namespace tbx::extern_kernels {
class CustomNode;
}

namespace tbx {

struct Graph;
using ValueId = int32_t; ///< index in Graph::values; -1: optional input or output left out

/// ONNX value types: tensor, sequence(element), optional(element), map (key dtype + element).
struct ValueType {
  enum Kind { tensor, sparse_tensor, sequence, optional, map, unknown } kind = unknown;
  DType dtype = DType::undefined;   ///< tensor element type, or map key type
  std::optional<ir::SymInts> shape; ///< tensor; nullopt: rank unknown. Unknown dims are fresh symbols.
  std::shared_ptr<const ValueType> element; ///< sequence, optional, map
};

struct Value {
  std::string name;
  ValueType type;
  int producer = -1;                      ///< node index, -1 for inputs, initializers and captures
  std::shared_ptr<const Tensor> constant; ///< initializer, Constant node or folded value
  /// The narrower float that memory holds it in, where it goes into memory (passes/narrow_storage.cpp). What
  /// is computed with it is of its own type all the same.
  DType stored = DType::undefined;
};

using Attribute =
    std::variant<int64_t, float, std::string, std::shared_ptr<const Tensor>, std::shared_ptr<Graph>,
                 std::vector<int64_t>, std::vector<float>, std::vector<std::string>,
                 std::vector<std::shared_ptr<const Tensor>>, std::vector<std::shared_ptr<Graph>>, ValueType>;

struct Node {
  std::string name, op_type, domain; ///< domain "" is ai.onnx
  int opset = 0;                     ///< version of `domain` under which this node is to be read
  std::vector<ValueId> inputs, outputs;
  std::map<std::string, Attribute> attributes; ///< as in the file; defaults are the lowering's business
  int origin = -1; ///< index in Graph::origins of the outermost graph: the node of the file it came from
  std::shared_ptr<const extern_kernels::CustomNode> custom; ///< set: an operator of a user's library

  ValueId input(size_t i) const { return i < inputs.size() ? inputs[i] : -1; }
};

/// Topologically ordered; every value has one producer; node inputs exist. Subgraphs of control flow sit in
/// node attributes; a value they capture from outside is listed in `captures`.
struct Graph {
  std::string name;
  std::shared_ptr<ir::Context> context; ///< shared by all subgraphs: owner of the dimension symbols
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;
  struct Capture {
    ValueId inner, outer;
  };
  std::vector<Capture> captures; ///< subgraphs only: values of the enclosing graph used here
  /// Subgraphs only, per output: the sizes that the file declares, -1 where it gives no number. They say what
  /// an element would be that no iteration makes; nothing else relies on them.
  std::vector<std::vector<int64_t>> declared_sizes;
  std::vector<std::string> origins;            ///< outermost graph: "name (OpType)" per node of the file
  std::map<std::string, int> opset_imports;    ///< domain -> version
  std::map<std::string, std::string> metadata; ///< producer_name, model_version, metadata_props, ...

  Value& at(ValueId id) { return values[id]; }
  const Value& at(ValueId id) const { return values[id]; }
};

/// Calls `fn(Graph&)` with every body graph in the attributes of `node`.
template <class Fn> void for_each_body(const Node& node, Fn fn) {
  for (const auto& [name, attribute] : node.attributes) {
    if (const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) fn(**body);
    if (const auto* bodies = std::get_if<std::vector<std::shared_ptr<Graph>>>(&attribute))
      for (const auto& each : *bodies) fn(*each);
  }
}

/// Calls `fn(Graph::Capture&)` with every value that the bodies of `node` take from the graph around it.
template <class Fn> void for_each_capture(const Node& node, Fn fn) {
  for_each_body(node, [&](Graph& body) {
    for (Graph::Capture& capture : body.captures) fn(capture);
  });
}

/// Nodes with an output that the graph's outputs need and that is no constant; 0 or 1 per node.
std::vector<char> live_nodes(const Graph& graph);

/// Gives up the nodes and constants of a graph that was lowered, and leaves inputs, outputs and types.
void keep_signature(Graph& graph);

/// Sets Value::producer from the nodes' outputs, after nodes were moved, added or removed.
void set_producers(Graph& graph);

/// "tensor(float32)", "sequence(tensor(string))", "map(int64, tensor(float32))".
std::string type_text(const ValueType& type);

/// How errors name a node: "node 'conv1' (Conv, opset 13)"; one without a name goes by its first output.
std::string describe(const Graph& graph, const Node& node);

/// The size that `body` declares for dimension `dim` of an output of rank `rank`; -1 where it declares none,
/// or another rank.
int64_t declared_size(const Graph& body, size_t output, size_t dim, size_t rank);
/// The shape of the iteration number (input 0) or condition (input 1) that the body of a Loop gets: a scalar,
/// or [1] where the body declares a rank of one, as files of older exporters do.
std::vector<int64_t> dims_of_loop_number(const Graph& body, size_t input);
/// Deterministic text (`tbx dump --stage=import`).
std::string to_string(const Graph& graph);
/// Throws InternalError when the graph is not SSA, not topologically ordered, or names a missing value.
void verify(const Graph& graph);

} // namespace tbx
