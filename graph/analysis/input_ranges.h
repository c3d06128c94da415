// What the integers of a graph's inputs may be, told by what the graph does with them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tbx::graph {

struct InputRange {
  int64_t least = 0;
  std::vector<std::string> below; ///< numbers and names of dimensions, each a bound; none: nothing is known
  bool distinct = false;          ///< no two elements are equal
};

/// By name, for every integer input that the graph tells something of: its elements are followed through
/// nodes that move them and add or multiply by constants to those that need indices, axes, lengths or counts
/// (tests/cli/test_input_ranges.py). Inputs that obey may still be refused: what several inputs must be
/// together, or what is computed from them in other ways, is not followed.
std::map<std::string, InputRange> ranges_of_inputs(const Graph& graph);

} // namespace tbx::graph
