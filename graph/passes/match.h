// Walking and editing a Graph: what the passes are written with.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/node_attributes.h"

namespace tbx::graph {

/// Uses of every value, kept while a pass edits the graph.
class Editor {
public:
  explicit Editor(Graph& graph);

  Graph& graph;

  /// The node that makes `id`; nullptr where none does.
  Node* producer(ValueId id);
  /// The same where it is an ai.onnx operator of that name that broadcasts as numpy does; nullptr otherwise.
  Node* producer(ValueId id, const char* op_type);
  /// Uses of a value as node input, by subgraphs and as graph output.
  int uses(ValueId id) const { return uses_[id]; }
  /// The number of a constant of one element, as double; nullopt when it is none.
  std::optional<double> number(ValueId id) const;
  /// Whether it is `wanted`, to the digits of its type: see about(), which f64 is held to all of its own.
  bool is_number(ValueId id, double wanted) const;
  /// Turns `node` into `op_type` over `inputs`; its output stays. For the last node of a pattern: everything
  /// the pattern reads is made before it.
  void become(Node& node, const char* op_type, int opset, std::vector<ValueId> inputs,
              std::map<std::string, Attribute> attributes = {});
  /// Nobody reads what `node` makes any more: what it reads counts as used no longer. It stays until
  /// eliminate_dead_code.
  void release(const Node& node) {
    for (ValueId id : node.inputs)
      if (id >= 0) --uses_[id];
  }
  ValueId add_constant(Tensor tensor, std::string name);
  /// A value of this type that no node makes yet.
  ValueId add_value(std::string name, ValueType type);

private:
  std::vector<int> uses_;
};

/// True when `v` is `wanted` as exporters write it: exactly where 8 bits hold it, as a half or an exponent
/// of 2; of what has more digits some, within one part in 10^4, or as many as f16 or bf16 have.
bool about(double v, double wanted);

/// The f32 constant behind `id`; nullptr when it is none.
const Tensor* f32_constant(const Graph& graph, ValueId id);

/// An Add, Mul, ... of opsets 1 to 6, as functions may have them, which says itself where the dimensions of
/// its second operand are.
bool places_operand(const Node& node);

/// False when numbers of f32 that were multiplied left its range, upwards or all of them to where it has
/// fewer digits.
bool keeps_digits(const Tensor& before, const Tensor& after);

/// True when `id` is a constant vector over the last dimension of `x` and of its type.
bool is_vector_over_last(const Graph& graph, ValueId id, ValueId x);

/// False when the result of `node`, the last one of a pattern over `x`, may have more dimensions than `x`:
/// numbers that the pattern multiplies by or adds may be constants of more dimensions than what they meet.
bool keeps_rank(Editor& e, const Node& node, ValueId x);

/// The order of a Transpose, which is reversed when it names none; empty when it is no permutation (the
/// lowering reports that) or the rank is unknown.
std::vector<int64_t> transpose_order(const Graph& graph, const Node& node);
bool is_identity_order(const std::vector<int64_t>& order);

/// The input of a ReduceMean over the last dimension that keeps it; -1: `id` is something else.
ValueId mean_of_last(Editor& e, ValueId id);

/// Readers of value v, in subgraphs too, read `stands_for[v]` instead (followed to its end); outputs of the
/// graph keep their values.
void replace_values(Graph& graph, std::vector<ValueId> stands_for);

/// The two inputs of a commutative node when one of them satisfies `is`: (that one, the other).
template <class F> std::optional<std::pair<ValueId, ValueId>> either(const Node& node, F&& is) {
  if (node.inputs.size() != 2) return std::nullopt;
  if (is(node.inputs[0])) return std::pair(node.inputs[0], node.inputs[1]);
  if (is(node.inputs[1])) return std::pair(node.inputs[1], node.inputs[0]);
  return std::nullopt;
}

} // namespace tbx::graph
