// Integers that follow from shapes become constants. No pass of the compiler, which knows them where it
// lowers; for models that are written to a file.
#pragma once

#include "graph/graph.h"

namespace tbx::graph {

/// All of what Shape, Gather, Concat, ... compute for Reshape and its like where no dynamic dimension is in
/// it. Returns how many values that are.
int fold_shapes(Graph& graph);

} // namespace tbx::graph
