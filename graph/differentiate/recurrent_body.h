// LSTM, GRU and RNN in terms of other operators.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace tbx::graph {

/// What the node computes as a Scan per direction: the form in which it is differentiated. nullopt for other
/// operators and for types other than float and double.
std::optional<Graph> recurrent_body(const Node& node, const Graph& graph);

} // namespace tbx::graph
