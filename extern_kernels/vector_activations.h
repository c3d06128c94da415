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

/// Limits of what follows; volatile as kLeastPower is.
inline const volatile float kMostGelu = 16, kLeastShare = -127;

/// x / 2 * (1 + erf(x / sqrt 2)) of `N` vectors, off by 2 ulp of x at most. Side by side, for the steps of
/// one wait for each other. Below 0 nothing is cancelled: what is left of x there is 2^-(1 + a q(a)) of it,
/// with a = |x| and a polynomial that grows beyond the range of its fit.
template <int B, int N> [[gnu::always_inline]] inline void gelu_of(typename VectorOf<B>::Lanes (&x)[N]) {
  using Lanes = typename VectorOf<B>::Lanes;
  using Ints = typename VectorOf<B>::Ints;
  constexpr float kWhole = 0x1.8p23f + 127; // as in vector_exp.h
  const Lanes most = Lanes{} + kMostGelu, least = Lanes{} + kLeastShare;
  Lanes a[N], p[N], at[N];
#define TBX_EACH(...)                                                                                        \
  _Pragma("GCC unroll 8") for (int i = 0; i < N; ++i) { __VA_ARGS__; }
  TBX_EACH(Ints bits; __builtin_memcpy(&bits, &x[i], B); bits &= INT32_MAX; __builtin_memcpy(&a[i], &bits, B))
  TBX_EACH(a[i] = most < a[i] ? most : a[i]) // nothing is left there; NaN stays
  TBX_EACH(p[i] = -3.937734800274484e-05f + a[i] * 2.834882934621419e-06f)
  TBX_EACH(p[i] = 0.00018617870227899402f + a[i] * p[i])
  TBX_EACH(p[i] = 0.0001369398960378021f + a[i] * p[i])
  TBX_EACH(p[i] = -0.007063424214720726f + a[i] * p[i])
  TBX_EACH(p[i] = 0.052496179938316345f + a[i] * p[i])
  TBX_EACH(p[i] = 0.4592081904411316f + a[i] * p[i])
  TBX_EACH(p[i] = 1.1511051654815674f + a[i] * p[i])
  TBX_EACH(p[i] = -1 - a[i] * p[i])
  TBX_EACH(p[i] = least > p[i] ? least : p[i])
  TBX_EACH(at[i] = p[i] + kWhole)
  TBX_EACH(const Lanes n = at[i] - kWhole; p[i] = p[i] - n)
  Lanes power[N]; // 2^p
  TBX_EACH(power[i] = 0.009671619161963463f + p[i] * 0.0013264591107144952f)
  TBX_EACH(power[i] = 0.0555073507130146f + p[i] * power[i])
  TBX_EACH(power[i] = 0.24022240936756134f + p[i] * power[i])
  TBX_EACH(power[i] = 0.6931470036506653f + p[i] * power[i])
  TBX_EACH(power[i] = 1 + p[i] * power[i])
  TBX_EACH(Ints n; __builtin_memcpy(&n, &at[i], B); n = n << 23; // 2^n, 0 for the least
           __builtin_memcpy(&at[i], &n, B); power[i] = power[i] * at[i])
  TBX_EACH(x[i] = x[i] > 0 ? x[i] - a[i] * power[i] : x[i] * power[i])
#undef TBX_EACH
}

} // namespace tbx::extern_kernels
