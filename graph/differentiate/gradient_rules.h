// Rules of differentiation: for each operator the nodes that take the gradient of its result to those of its
// inputs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace tbx::graph {

/// Appends nodes to a graph under construction.
class GradientBuilder {
public:
  explicit GradientBuilder(Graph& graph, std::vector<Node>& nodes, int origin)
      : graph(graph), nodes_(nodes), origin_(origin) {}

  /// One node of ai.onnx in its form of opset 18; the result is said to have the type of `like`.
  ValueId emit(const std::string& op, std::vector<ValueId> inputs, ValueId like,
               std::map<std::string, Attribute> attributes = {});
  ValueId ints(const std::vector<int64_t>& values);
  /// A scalar of the element type of `like`.
  ValueId number(ValueId like, double value);
  /// A tensor of the shape and type of `like`, filled.
  ValueId filled(ValueId like, double value);
  /// The gradient of a broadcast operand: `g`, of the shape of `result`, summed to the shape of `x`.
  ValueId sum_to(ValueId g, ValueId result, ValueId x);
  /// `g` in the shape of `x`; of type `type` where it is not that of `x`.
  ValueId reshape_like(ValueId g, ValueId x, DType type = DType::undefined);
  /// The elements of `v` as a list.
  ValueId flat(ValueId v) { return emit_any("Reshape", {v, ints({-1})}, v); }
  /// `value` of the element type of `like` in the shape that the list `sizes` says.
  ValueId full(ValueId sizes, ValueId like, double value);
  /// Like emit, of a shape that no rule relies on.
  ValueId emit_any(const std::string& op, std::vector<ValueId> inputs, ValueId like,
                   std::map<std::string, Attribute> attributes = {});
  /// Adds a copy of a node; its outputs become new values of type `type`.
  void append(Node& node, DType type);
  /// Adds a node as it is.
  void push(Node node);
  const ValueType& type(ValueId v) const { return graph.at(v).type; }
  /// Sizes of a value, UnsupportedError naming it where the rank is unknown.
  const ir::SymInts& sizes(ValueId v) const;

  Graph& graph;

private:
  /// A constant made as float, in the type of `like`.
  ValueId as_like(ValueId v, ValueId like);

  std::vector<Node>& nodes_;
  int origin_;
};

/// What a rule sees: the node, the gradients of its outputs, and where gradients of the inputs go.
struct RuleCall {
  GradientBuilder& b;
  const Node& node;
  std::vector<ValueId> gradients; ///< per output, -1: none
  /// Adds to the gradient of a value; ignored when nobody needs it.
  std::function<void(ValueId v, ValueId g)> give_to;
  std::function<bool(ValueId v)> varies;

  /// The same of input `i`.
  void give(int i, ValueId g) const {
    if (needs(i)) give_to(in(i), g);
  }
  bool needs(int i) const {
    const ValueId v = node.input(static_cast<size_t>(i));
    return v >= 0 && varies(v);
  }
  ValueId in(int i) const { return node.inputs.at(i); }
  ValueId out() const { return node.outputs.at(0); }
  ValueId gradient(int k = 0) const { return k < static_cast<int>(gradients.size()) ? gradients[k] : -1; }
  int64_t integer(const char* name, int64_t otherwise) const;
  double real(const char* name, double otherwise) const;
  std::string text(const char* name, const char* otherwise) const;
  std::vector<int64_t> integers(const char* name) const; ///< empty where it is left out
};

using Rule = void (*)(const RuleCall&);

/// By the expressions that the operator lowers to (graph/differentiate/derivative_node.h): for every operator
/// that has no rule of its own.
void derivative_rule(const RuleCall& c);
/// nullptr when the operator (of ai.onnx) has no rule.
Rule find_rule(std::string_view op);
/// The rule takes gradients of all outputs.
bool takes_all_gradients(std::string_view op);

// graph/differentiate/gradient_movement.cpp
void movement_rule(const RuleCall& c);
void pad_rule(const RuleCall& c);
void resize_rule(const RuleCall& c);
void top_k_rule(const RuleCall& c);
// graph/differentiate/gradient_control.cpp
void if_rule(const RuleCall& c);
void loop_rule(const RuleCall& c);
void scan_rule(const RuleCall& c);
// graph/differentiate/gradient_einsum.cpp
void einsum_rule(const RuleCall& c);
// graph/differentiate/gradient_windows.cpp
void conv_rule(const RuleCall& c);
void conv_transpose_rule(const RuleCall& c);
void max_pool_rule(const RuleCall& c);
void average_pool_rule(const RuleCall& c);

} // namespace tbx::graph
