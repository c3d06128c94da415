// What becomes of one row before a product and of its results, by plain loops.
#pragma once

#include <cmath>
#include <vector>

#include "base/float_formats.h"
#include "extern_kernels/problem.h"

namespace tbx::extern_kernels {

/// The row as the product reads it; `scale` and `shift` may be empty.
inline void norm_row(const RowWork& work, std::vector<double>& x, const std::vector<double>& scale,
                     const std::vector<double>& shift) {
  if (work.norm == RowWork::as_it_is) return;
  const auto n = static_cast<double>(x.size());
  double mean = 0, squares = 0;
  if (work.norm == RowWork::layer)
    for (double v : x) mean += v / n;
  for (double& v : x) v -= mean, squares += v * v / n;
  const double deviation = std::sqrt(squares + double{work.epsilon});
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] /= deviation;
    if (work.rounded != DType::undefined)
      x[i] = decode_float(work.rounded, encode_float(work.rounded, static_cast<float>(x[i])));
    if (!scale.empty()) x[i] *= scale[i];
    if (!shift.empty()) x[i] += shift[i];
  }
}

inline double activated(RowWork::Activation activation, double x) {
  switch (activation) {
  case RowWork::none: return x;
  case RowWork::relu: return x < 0 ? 0 : x;
  case RowWork::gelu_tanh:
    return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  case RowWork::gelu_erf: return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440));
  case RowWork::silu: return x / (1 + std::exp(-x));
  }
  return x;
}

/// The results of a product whose columns gave `sums`.
inline std::vector<double> finish_row(const RowWork& work, std::vector<double> sums) {
  if (work.gate == RowWork::no_gate) {
    for (double& v : sums) v = activated(work.activation, v);
    return sums;
  }
  const size_t half = sums.size() / 2, through = work.gate == RowWork::first ? 0 : half;
  std::vector<double> results(half);
  for (size_t i = 0; i < half; ++i)
    results[i] = activated(work.activation, sums[through + i]) * sums[half - through + i];
  return results;
}

} // namespace tbx::extern_kernels
