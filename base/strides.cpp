#include "base/strides.h"

namespace tbx {

std::vector<int64_t> row_major_strides(std::span<const int64_t> sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= sizes[d]) strides[d] = step;
  return strides;
}

std::vector<int64_t> channels_last_strides(std::span<const int64_t> sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t step = sizes[1];
  strides[1] = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    if (d == 1) continue;
    strides[d] = step;
    step *= sizes[d];
  }
  return strides;
}

bool is_channels_last(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  const std::vector<int64_t> last = channels_last_strides(sizes);
  for (size_t d = 0; d < last.size(); ++d)
    if (sizes[d] != 1 && strides[d] != last[d]) return false;
  return true;
}

bool is_row_major(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  int64_t step = 1;
  for (size_t d = sizes.size(); d-- > 0; step *= sizes[d]) {
    if (sizes[d] <= 0) return true;
    if (sizes[d] != 1 && strides[d] != step) return false;
  }
  return true;
}

} // namespace tbx
