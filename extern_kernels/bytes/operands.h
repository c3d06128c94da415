// Operands of products of 8-bit integers in the form that the loops read.
#pragma once

#include <algorithm>

#include "extern_kernels/bytes/tile.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::bytes {

/// What is read behind the last term of an odd number: it is multiplied by 0.
inline constexpr int64_t kSlack = 2;

/// to[i] = from[i * step], bytes of this type, less their zero point. Returns the sum of them.
int32_t widen(const void* from, DType type, int64_t step, int64_t count, int32_t zero, int16_t* to);

/// Panel number `panel` of [place, pair, column, 2]: `value(column, place, term)` for `depth` terms at each
/// place, 0 beyond them and beyond the last column.
template <class F>
void pack_panel(int64_t panel, int64_t columns, const Terms& terms, int64_t depth, F&& value, int8_t* to) {
  const int64_t first = panel * kPanel, width = std::min<int64_t>(kPanel, columns - first);
  std::fill_n(to, terms.count * terms.pairs * kPairBytes, int8_t{0});
  for (int64_t t = 0; t < terms.count; ++t, to += terms.pairs * kPairBytes)
    for (int64_t l = 0; l < depth; ++l) {
      int8_t* row = to + l / 2 * kPairBytes + l % 2;
      for (int64_t j = 0; j < width; ++j) row[2 * j] = value(first + j, t, l);
    }
}

} // namespace tbx::extern_kernels::bytes
