// A stack of matrices by strides.
#pragma once

#include <functional>
#include <numeric>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

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
  int64_t at(int64_t i) const {
    int64_t place = 0;
    for (size_t d = batch().size(); d-- > 0; i /= batch()[d]) place += i % batch()[d] * t.strides[d];
    return place;
  }
};

} // namespace tbx::extern_kernels
