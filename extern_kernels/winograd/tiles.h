// Tiles along one dimension of the results.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tbx::extern_kernels::winograd {

/// A dilated convolution is one without dilation for each of `dilation` lines of results that take turns:
/// those of a tile are `dilation` apart.
class TileLine {
public:
  TileLine(int64_t size, int64_t dilation, int tile)
      : dilation_(dilation), tile_(tile), longer_(size % dilation), of_longer_(tiles(size / dilation + 1)),
        of_others_(tiles(size / dilation)) {}

  int64_t count() const { return longer_ * of_longer_ + (dilation_ - longer_) * of_others_; }
  /// Where tile `i` has its first result.
  int64_t first(int64_t i) const {
    const int64_t in_longer = longer_ * of_longer_;
    const bool is_longer = i < in_longer;
    const int64_t of_line = is_longer ? of_longer_ : of_others_, at = is_longer ? i : i - in_longer;
    return (is_longer ? 0 : longer_) + at / of_line + at % of_line * tile_ * dilation_;
  }

private:
  int64_t tiles(int64_t results) const { return (results + tile_ - 1) / tile_; }

  int64_t dilation_, tile_;
  int64_t longer_;                ///< lines that have a result more than the others, the first ones
  int64_t of_longer_, of_others_; ///< tiles of a line
};

} // namespace tbx::extern_kernels::winograd
