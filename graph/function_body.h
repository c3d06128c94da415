// What ONNX's schemas say of an operator: since when it has its form, and its body in terms of other
// operators.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "graph/graph.h"

namespace tbx {

/// The body that ONNX defines for the operator of `node`, or nullopt when it defines none.
///
/// The result shares the context of `graph`. Its inputs and outputs correspond to the node's, -1 where the
/// node leaves one out; inputs carry type and constant of the node's. Nodes carry the operator set versions
/// of the body, which can be older than the model's. Lowering calls this for operators it has no lowering
/// for.
std::optional<Graph> expand_function(const Graph& graph, const Node& node);
/// Puts that body in the place of node `i`. False when there is none.
bool inline_function(Graph& graph, size_t i);
/// The same with a body of another source.
bool inline_function(Graph& graph, size_t i, const Graph& body);
/// A body from a function in ONNX's text form whose inputs and outputs correspond to those of `node`.
Graph body_of_text(const Graph& graph, const Node& node, const std::string& text);
/// Operators (domain, name, version) that ONNX defines a body for.
std::vector<std::tuple<std::string, std::string, int>> operators_with_body();
/// ONNX defines a body for some inputs of the operator; it can depend on their shapes.
bool has_function_body(const Node& node);

/// The first version in which the operator has the form it has in `opset`; nullopt when there is no such
/// operator.
std::optional<int> schema_since_version(std::string_view domain, std::string_view op_type, int opset);

} // namespace tbx
