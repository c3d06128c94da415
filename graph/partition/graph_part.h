// Parts of a graph as graphs of their own, and copies of a graph in a Context of their own.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "runtime/made_for.h"

namespace tbx::graph {

/// Values that a node reads: its inputs and what its bodies capture.
std::vector<ValueId> values_read(const Node& node);

/// The nodes `nodes` (ascending) of `g` as a graph with these inputs and outputs, all values of `g`. Inputs
/// get different names.
/// `from[i]`: the value of `g` that value i of the part is.
Graph extract(const Graph& g, const std::vector<int>& nodes, const std::vector<ValueId>& inputs,
              const std::vector<ValueId>& outputs, std::vector<ValueId>& from);

using runtime::InputKind;

/// What the types of the graph's inputs say. False where an input is no tensor of known type and rank.
bool declared_kinds(const Graph& g, std::vector<InputKind>& kinds);

/// Tells sizes of the inputs what these kinds say of them: that they are several.
void narrow_inputs(const Graph& g, const std::vector<InputKind>& kinds);

/// A copy in a new Context whose inputs have these types. With `trust_shapes`, what the graph knows of the
/// shapes of its other values is kept.
Graph copy_with(const Graph& g, const std::vector<InputKind>& kinds, bool trust_shapes);

} // namespace tbx::graph
