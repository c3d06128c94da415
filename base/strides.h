// Strides of dense tensors, in elements.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tbx {

std::vector<int64_t> row_major_strides(std::span<const int64_t> sizes);
/// Dimension 1 innermost: N, spatial..., C. Needs two dimensions.
std::vector<int64_t> channels_last_strides(std::span<const int64_t> sizes);
/// Whether strides are these. A dimension of one element may have any.
bool is_channels_last(std::span<const int64_t> sizes, std::span<const int64_t> strides);

/// Whether elements lie in row-major order. A dimension of one element may have any stride; outside of one
/// that is empty, or of a size that is not known (below 0), nothing is asked.
bool is_row_major(std::span<const int64_t> sizes, std::span<const int64_t> strides);

} // namespace tbx
