// MadeFor: the inputs that an executable serves, where it does not serve all that the model takes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/tensor.h"
#include "runtime/session.h"

namespace tbx::runtime {

/// What a program takes for granted of the sizes of its inputs. A run for which that is wrong raises
/// AssumptionError and wants a program that takes less for granted.
enum class Assume : uint8_t {
  nothing,
  exact_floats, ///< sizes that pass through floats are exact there
  broadcast_too ///< and dimensions that meet in a broadcast are equal
};
inline Assume less_than(Assume a) {
  return a == Assume::broadcast_too ? Assume::exact_floats : Assume::nothing;
}

/// What is to be assumed of an input.
struct InputKind {
  DType dtype = DType::undefined;
  /// A number, or -1 - k: the k-th size that is not known; equal k, equal size. nullopt: not even the rank is
  /// known.
  std::optional<std::vector<int64_t>> dims;
  std::vector<int64_t> several; ///< axes of sizes that are not known, but kLeastSize or more
};

/// From here on a size is one of many: 0 and 1 are special cases.
inline constexpr int64_t kLeastSize = 2;
/// Elements of an input that code takes for any size or position (lowering::kMinElement, ir::kMaxSize).
inline constexpr int64_t kLeastSizeElement = kLeastSize, kGreatestSizeElement = int64_t{1} << 48;
inline bool is_size(int64_t element) {
  return element >= kLeastSizeElement && element <= kGreatestSizeElement;
}

struct MadeFor {
  std::vector<InputKind> kinds;                      ///< by input; none: any inputs
  std::vector<std::shared_ptr<const Tensor>> values; ///< by input: elements it is made for, or nullptr
  /// By input: its integers where they are fixed; the others may be any size.
  std::vector<std::vector<std::optional<int64_t>>> elements;
  Assume assume = Assume::broadcast_too;

  bool fits(std::span<const RunTensor> inputs) const;
  /// Whether it is of that many inputs, and says of their dimensions what can be.
  bool is_of(size_t num_inputs) const;
};

} // namespace tbx::runtime
