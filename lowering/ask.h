// How the lowering of an operator asks for what it does not know.
#pragma once

#include <string>
#include <vector>

#include "ir/symint.h"
#include "lowering/demand.h"

namespace tbx::lowering {

/// Thrown within lowering, and caught by lower() alone, which makes a Demand of it: of what was asked for,
/// and of the nodes whose lowering has begun. No Error, so nobody takes it for one.
struct Asked {
  Demand::Kind kind;
  Error reason;                ///< without the node
  std::vector<ValueId> values; ///< elements: of the graph whose node is lowered; none: all inputs of the node
  std::vector<ir::SymInt> sizes = {}; ///< shapes: what must be known; none: it may be anything
};

/// For the elements of these values (axes, sizes, ...).
[[noreturn]] void ask_for_elements(std::string message, const std::vector<ValueId>& values);
/// For the sizes of the graph's inputs.
Asked asked_for_sizes(std::string message);
[[noreturn]] void ask_for_sizes(std::string message);
/// For those sizes of the graph's inputs from which `size` is computed.
[[noreturn]] void ask_for_size(ir::SymInt size, std::string message);
/// Whether all symbols in it are sizes of 2 or more, which code for a run takes those for that were asked
/// for.
bool is_made_of_several(ir::SymInt size);
/// For a run: the node works on values that no program holds.
[[noreturn]] void ask_for_run(std::string message, std::string hint = {});

} // namespace tbx::lowering
