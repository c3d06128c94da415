// How far the bytes of constant weights add up: what decides whether sums of products stay exact.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"

namespace tbx {

/// Of each index of one dimension: the sum of its positive elements, and of its negative ones, less their
/// sign.
struct ByteSums {
  std::vector<int64_t> above, below;
};

/// Sums of i8, or of u8 less 128, at these sizes and strides, over all dimensions but `kept`.
ByteSums byte_sums(const std::byte* data, DType type, std::span<const int64_t> sizes,
                   std::span<const int64_t> strides, size_t kept);

} // namespace tbx
