// Growing sizes: those that change from run to run of a session with a state, and that recorded work takes
// without being recorded again. Buffers get places with room for them to grow, so that addresses stay, and
// kernels that work on them get other arguments.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/shape_plan.h"

namespace tbx::runtime {

struct Growing {
  std::vector<int> symbols;        ///< by their numbers
  std::vector<int> steps, buffers; ///< whose sizes depend on them
  /// By input and output: the steps that work on it on the device, where all of them take other addresses
  /// from run to run.
  std::vector<std::optional<std::vector<int>>> inputs, outputs;
  bool any() const { return !symbols.empty(); }
  /// The sizes for which places are laid out: a power of two for each symbol that grows. So there are few
  /// of them.
  std::vector<int64_t> room_of(std::span<const int64_t> symbols) const;
};

/// Symbols on which nothing depends but kernels of ours. None where no state is kept, or the host has work in
/// a run.
Growing growing_sizes(const BoundExecutable& bound, const SymbolUses& uses);

} // namespace tbx::runtime
