// Rewrites of a graph before it is split: what makes more of it run compiled, or run at all, on run-time
// values.
#pragma once

#include "graph/graph.h"

namespace tbx::graph {

/// A tensor of numbers, as far as its type tells.
bool is_numeric(const ValueType& type);
/// The graph has an input, output or constant that no plan holds, an input of unknown rank, or it generates
/// text.
bool needs_values(const Graph& g);

/// It may turn out while it is lowered that the graph needs values: it has bodies, or values that no plan
/// holds.
bool may_need_values(const Graph& g);

/// Operators that only move, compare or count elements run on numbers that stand for strings:
/// Y = Gather(S, i) -> n = StringIds(S), m = Gather(n, i), Y = StringTake(m, S).
void number_strings(Graph& g);
} // namespace tbx::graph
