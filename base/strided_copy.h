// Copies of elements that lie at any steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tbx {

/// Copies the elements of a tensor of `sizes`, which lie `strides` apart (in elements of 1, 2, 4 or 8 bytes)
/// from `from` on, to `to` in row-major order.
void copy_strided(const std::byte* from, std::span<const int64_t> sizes, std::span<const int64_t> strides,
                  int64_t element_bytes, std::byte* to);

} // namespace tbx
