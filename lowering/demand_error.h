// How the lowering of an operator asks for what it does not know. Thrown within lowering alone: lower() turns
// both into a Demand.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"

namespace tbx::lowering {

/// A node needs the elements of a value while compiling (axes, sizes, ...) and they are not known.
class UnknownValueError : public Error {
public:
  UnknownValueError(std::string message, std::vector<ValueId> values);
  std::vector<ValueId> values; ///< of the graph that is being lowered
  std::vector<ValueId>
      needed;             ///< what the node needs, as it reads it: set where its lowering ends, with `node`
  int node = -1;          ///< of the graph that is being lowered
  bool of_shapes = false; ///< what must be known are the sizes of the graph inputs
};

/// A node works on values that no program holds.
class RuntimeValueError : public Error {
public:
  explicit RuntimeValueError(std::string message, std::string hint = {})
      : Error(ErrorKind::unsupported, std::move(message), std::move(hint)) {}
  int node = -1; ///< of the graph that is being lowered; -1: an input or output is such a value
};

} // namespace tbx::lowering
