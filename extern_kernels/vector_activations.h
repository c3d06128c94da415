// Activation functions of whole vectors for hand-written kernels, inlined into one function per instruction
// set. By reference, as in vector_exp.h.
#pragma once

#include "extern_kernels/vector_exp.h"
#include "extern_kernels/vectors.h"

namespace tbx::extern_kernels {

/// 1 / (1 + e^-x), 3 ulp off at most.
template <int B> [[gnu::always_inline]] inline void sigmoid_of(typename VectorOf<B>::Lanes& x) {
  using Lanes = typename VectorOf<B>::Lanes;
  Lanes a = x < 0 ? x : -x, e; // NaN stays
  a = a < -87.0f ? Lanes{} - 87.0f : a;
  exp_of_negative<typename VectorOf<B>::Ints>(a, e);
  x = (x >= 0 ? Lanes{} + 1.0f : e) / (1 + e);
}

/// 3 ulp off at most.
template <int B> [[gnu::always_inline]] inline void tanh_of(typename VectorOf<B>::Lanes& x) {
  using Lanes = typename VectorOf<B>::Lanes;
  Lanes a = x < 0 ? -x : x, u = x * x, e;
  Lanes t = 0.02060200832784176f + u * -0.005660790018737316f;
  t = -0.05372922867536545f + u * t;
  t = 0.13331328332424164f + u * t;
  t = -0.33333277702331543f + u * t;
  Lanes small = x + x * (u * t);
  Lanes b = a > 10.0f ? Lanes{} + 10.0f : a;
  b = -2 * b;
  exp_of_negative<typename VectorOf<B>::Ints>(b, e);
  Lanes big = (1 - e) / (1 + e);
  big = x < 0 ? -big : big;
  x = a < 0.625f ? small : big;
}

/// 3 ulp off at most; the coefficients are those of generated kernels.
template <int B> [[gnu::always_inline]] inline void erf_of(typename VectorOf<B>::Lanes& x) {
  using Lanes = typename VectorOf<B>::Lanes;
  const Lanes a = x < 0 ? -x : x, u = x * x;
  Lanes s = -0.0008020842215046287f + u * 7.889122935011983e-05f;
  s = 0.005189535673707724f + u * s;
  s = -0.026854444295167923f + u * s;
  s = 0.11283600330352783f + u * s;
  s = -0.3761262595653534f + u * s;
  s = 0.12837916612625122f + u * s;
  const Lanes small = x + x * s;
  const Lanes t = a > 4.1f ? Lanes{} + 4.1f : a;
  Lanes q = -0.0003523323102854192f + t * 1.413384779880289e-05f;
  q = 0.003764661028981209f + t * q;
  q = -0.024025510996580124f + t * q;
  q = 0.10654910653829575f + t * q;
  q = 0.6349582672119141f + t * q;
  q = 1.128697156906128f + t * q;
  q = -(t * q);
  Lanes e;
  exp_of_negative<typename VectorOf<B>::Ints>(q, e);
  const Lanes big = x < 0 ? e - 1 : 1 - e;
  x = a < 1 ? small : big;
}

} // namespace tbx::extern_kernels
