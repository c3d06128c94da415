// Rules of differentiation: for each operator the nodes that take the gradient of its result to those of its
// inputs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "importer/graph.h"

namespace tbx::importer {

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
  ValueId reshape_like(ValueId g, ValueId x);
  const ValueType& type(ValueId v) const { return graph.at(v).type; }
  /// Sizes of a value, UnsupportedError naming it where the rank is unknown.
  const ir::SymInts& sizes(ValueId v) const;

  Graph& graph;

private:
  std::vector<Node>& nodes_;
  int origin_;
};

/// What a rule sees: the node, the gradient of its first output, and where gradients of the inputs go.
struct RuleCall {
  GradientBuilder& b;
  const Node& node;
  ValueId gradient;
  /// Adds to the gradient of input `i`; ignored when nobody needs it.
  std::function<void(int i, ValueId g)> give;
  std::function<bool(int i)> needs;

  ValueId in(int i) const { return node.inputs.at(i); }
  ValueId out() const { return node.outputs.at(0); }
  int64_t integer(const char* name, int64_t otherwise) const;
  double real(const char* name, double otherwise) const;
};

using Rule = void (*)(const RuleCall&);

/// nullptr when the operator (of ai.onnx) has no rule.
Rule find_rule(std::string_view op);
/// Operators that pass no gradient on: comparisons, Shape, rounding.
bool stops_gradient(std::string_view op);

} // namespace tbx::importer
