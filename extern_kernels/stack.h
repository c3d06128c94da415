// A stack of matrices by strides.
#pragma once

#include <functional>
#include <numeric>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Where element number `i` of these dimensions lies, counted in rows.
inline int64_t place_of(int64_t i, std::span<const int64_t> sizes, std::span<const int64_t> steps) {
  int64_t place = 0;
  for (size_t d = sizes.size(); d-- > 0; i /= sizes[d]) place += i % sizes[d] * steps[d];
  return place;
}

/// The same of elements one after the other, from number `first` on.
inline void places_from(int64_t first, std::span<const int64_t> sizes, std::span<const int64_t> steps,
                        std::span<int64_t> places) {
  for (size_t done = 0; done < places.size();) {
    const int64_t i = first + static_cast<int64_t>(done), length = sizes.empty() ? 1 : sizes.back();
    int64_t place = place_of(i, sizes, steps);
    for (int64_t rest = length - i % length; rest > 0 && done < places.size(); --rest) {
      places[done++] = place;
      if (!sizes.empty()) place += steps[sizes.size() - 1];
    }
  }
}

struct Stack {
  const TensorRef& t;
  std::span<const int64_t> batch() const { return t.sizes.first(t.sizes.size() - 2); }
  int64_t count() const {
    return std::accumulate(batch().begin(), batch().end(), int64_t{1}, std::multiplies<>());
  }
  int64_t rows() const { return t.sizes.end()[-2]; }
  int64_t columns() const { return t.sizes.end()[-1]; }
  int64_t row_step() const { return t.strides.end()[-2]; }
  int64_t column_step() const { return t.strides.end()[-1]; }
  /// Where matrix `i` begins.
  int64_t at(int64_t i) const { return place_of(i, batch(), t.strides); }
};

} // namespace tbx::extern_kernels
