// Operands of products of 8-bit integers in the form that the loops read.
#pragma once

#include <vector>

#include "extern_kernels/bytes/tile.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::bytes {

/// What is read behind the last term of an odd number: it is multiplied by 0.
inline constexpr int64_t kSlack = 2;

/// to[i] = from[i * step], bytes of this type, less their zero point. Returns the sum of them.
int32_t widen(const void* from, DType type, int64_t step, int64_t count, int32_t zero, int16_t* to);

/// Where the weights of a product lie, in elements.
struct WeightSteps {
  int64_t column = 0;
  std::vector<int64_t> places; ///< the first term of each place
  std::vector<int64_t> terms;  ///< the terms of a place, from there
};

/// Panel number `panel` of [place, pair, column, 2] out of weights of `columns` columns from `from` on; 0
/// beyond the terms of a place and beyond the last column.
void pack_panel(int64_t panel, int64_t columns, const int8_t* from, const WeightSteps& steps, int8_t* to);

/// Planes of bytes of this type to channels that lie side by side, less their zero point: `count` pixels one
/// after the other, channels `channel_step` apart, to[pixel * channels + channel]. As many channels as fill
/// whole vectors, which is returned. `end`: where the memory of the image ends.
int64_t turn(const void* from, DType type, int64_t channel_step, int64_t count, int64_t channels,
             int32_t zero, const void* end, int16_t* to);

} // namespace tbx::extern_kernels::bytes
