// Demand: what lowering needs of its caller before it can give a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"

namespace tbx::lowering {

/// A size of an input of the graph.
struct SizeOfInput {
  std::string input;
  int axis;
};

struct Demand {
  enum class Kind : uint8_t {
    shapes,   ///< the sizes of the graph's inputs
    elements, ///< the elements of `inputs` (LowerOptions::known_inputs or element_inputs)
    split,    ///< parts: `node` works on values that no program holds (strings, sequences of unknown length,
              ///< bodies that run an unknown number of times); -1: an input or output is such a value
    assumptions, ///< fewer assumptions: with them, the model contradicts itself
  };

  Kind kind;
  Error reason;                    ///< names the node: what to throw where the demand cannot be met
  int node = -1;                   ///< of the graph that was lowered: whose lowering asks
  std::vector<ValueId> values;     ///< shapes, elements: what the node must know, as it reads it
  std::vector<std::string> inputs; ///< elements: the graph inputs that those are computed from
  std::vector<SizeOfInput> sizes;  ///< shapes: those that decide; none: it may be any
};

} // namespace tbx::lowering
