// Nodes of trees with any conditions.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels {

/// Bits of a node's condition: it holds when the value compares like this with the split.
constexpr uint32_t kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8;
constexpr int kFeatureBits = 28;

template <class T> struct TreeNode {
  T split; ///< of a leaf: its value, when there is one target, or where its row of weights begins
  uint32_t feature_mask; ///< feature, condition in the upper four bits
  int32_t child[2];      ///< condition false, true; a leaf is its own child

  uint32_t feature() const { return feature_mask & ((1u << kFeatureBits) - 1); }
  uint32_t condition() const { return feature_mask >> kFeatureBits; }
};

} // namespace tbx::extern_kernels
