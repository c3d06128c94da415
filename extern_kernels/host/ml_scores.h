// Transforms of score vectors (ai.onnx.ml `post_transform`), as ONNX Runtime computes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

namespace tbx::extern_kernels {

/// Numbered as in TreeEnsemble of ai.onnx.ml 5; lowerings translate the names of the older operators.
enum class PostTransform { none = 0, softmax = 1, logistic = 2, softmax_zero = 3, probit = 4 };

/// 1 / (1 + exp(-x)) without overflow for large |x|.
template <class T> T logistic(T x) {
  T v = 1 / (1 + std::exp(-std::abs(x)));
  return x < 0 ? 1 - v : v;
}

/// The quantile of the normal distribution, by Winitzki's approximation of the inverse error function.
template <class T> T probit(T p) {
  T x = 2 * p - 1, sign = x < 0 ? T(-1) : T(1), log = std::log((1 - x) * (1 + x));
  T a = 2 / (std::numbers::pi_v<T> * T(0.147)) + T(0.5) * log;
  return std::numbers::sqrt2_v<T> * sign * std::sqrt(std::sqrt(a * a - log / T(0.147)) - a);
}

/// In place; softmax_zero leaves scores of 0 out of the sum and at 0.
template <class T> void transform_scores(PostTransform transform, std::span<T> scores) {
  switch (transform) {
  case PostTransform::none: return;
  case PostTransform::logistic:
    for (T& s : scores) s = logistic(s);
    return;
  case PostTransform::probit:
    for (T& s : scores) s = probit(s);
    return;
  case PostTransform::softmax:
  case PostTransform::softmax_zero: break;
  }
  if (scores.empty()) return;
  bool keep_zero = transform == PostTransform::softmax_zero;
  T greatest = *std::max_element(scores.begin(), scores.end()), sum = 0;
  for (T& s : scores) {
    if (keep_zero && std::abs(s) <= T(1e-7)) {
      s *= std::exp(-greatest);
      continue;
    }
    s = std::exp(s - greatest);
    sum += s;
  }
  for (T& s : scores) s /= sum;
}

} // namespace tbx::extern_kernels
