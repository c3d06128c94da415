#include "extern_kernels/recurrent/activations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/isa.h"
#include "extern_kernels/vector_activations.h"

namespace tbx::extern_kernels::recurrent {
namespace {

// One body for all instruction sets, of vectors of `B` bytes, inlined into a function per target.

template <int B, bool is_tanh> [[gnu::always_inline]] inline void apply_body(float* x, int64_t n) {
  constexpr int64_t kLanes = B / 4;
  for (int64_t i = 0; i < n; i += kLanes) {
    typename VectorOf<B>::Lanes v = {};
    if (i + kLanes <= n)
      __builtin_memcpy(&v, x + i, sizeof v);
    else
      __builtin_memcpy(&v, x + i, static_cast<size_t>(n - i) * sizeof(float));
    if (is_tanh)
      tanh_of<B>(v);
    else
      sigmoid_of<B>(v);
    __builtin_memcpy(x + i, &v, static_cast<size_t>(std::min<int64_t>(kLanes, n - i)) * sizeof(float));
  }
}

template <int B>
[[gnu::always_inline]] inline void lstm_body(const float* sums, const float* input, int64_t stride, float* c,
                                             float* h) {
  constexpr int64_t kLanes = B / 4;
  static_assert(kPlainUnits % kLanes == 0);
  for (int64_t u = 0; u < kPlainUnits; u += kLanes) {
    typename VectorOf<B>::Lanes gate[4], state;
    for (int64_t g = 0; g < 4; ++g) {
      typename VectorOf<B>::Lanes a, b;
      __builtin_memcpy(&a, sums + g * kPlainUnits + u, sizeof a);
      __builtin_memcpy(&b, input + g * stride + u, sizeof b);
      gate[g] = a + b;
    }
    sigmoid_of<B>(gate[0]);
    sigmoid_of<B>(gate[1]);
    sigmoid_of<B>(gate[2]);
    tanh_of<B>(gate[3]);
    __builtin_memcpy(&state, c + u, sizeof state);
    state = gate[2] * state + gate[0] * gate[3];
    __builtin_memcpy(c + u, &state, sizeof state);
    tanh_of<B>(state);
    state *= gate[1];
    __builtin_memcpy(h + u, &state, sizeof state);
  }
}

/// h' = (1 - z) * candidate + z * h
template <int B>
[[gnu::always_inline]] inline void gru_body(const float* sums, const float* input, int64_t stride,
                                            const float* bias, const float* h, float* h_after) {
  constexpr int64_t kLanes = B / 4;
  static_assert(kPlainUnits % kLanes == 0);
  for (int64_t u = 0; u < kPlainUnits; u += kLanes) {
    typename VectorOf<B>::Lanes product[3], given[3], add, before;
    for (int64_t g = 0; g < 3; ++g) {
      __builtin_memcpy(&product[g], sums + g * kPlainUnits + u, sizeof product[g]);
      __builtin_memcpy(&given[g], input + g * stride + u, sizeof given[g]);
    }
    __builtin_memcpy(&add, bias + u, sizeof add);
    __builtin_memcpy(&before, h + u, sizeof before);
    typename VectorOf<B>::Lanes update = product[0] + given[0], reset = product[1] + given[1];
    sigmoid_of<B>(update);
    sigmoid_of<B>(reset);
    typename VectorOf<B>::Lanes candidate = given[2] + reset * (product[2] + add);
    tanh_of<B>(candidate);
    const typename VectorOf<B>::Lanes after = (1 - update) * candidate + update * before;
    __builtin_memcpy(h_after + u, &after, sizeof after);
  }
}

void sigmoid_plain(float* x, int64_t n) { apply_body<16, false>(x, n); }
void tanh_plain(float* x, int64_t n) { apply_body<16, true>(x, n); }
void lstm_plain(const float* s, const float* x, int64_t stride, float* c, float* h) {
  lstm_body<16>(s, x, stride, c, h);
}
void gru_plain(const float* s, const float* x, int64_t stride, const float* b, const float* h, float* to) {
  gru_body<16>(s, x, stride, b, h, to);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void lstm_avx2(const float* s, const float* x, int64_t stride, float* c,
                                                   float* h) {
  lstm_body<32>(s, x, stride, c, h);
}
__attribute__((target("avx2,fma"))) void gru_avx2(const float* s, const float* x, int64_t stride,
                                                  const float* b, const float* h, float* to) {
  gru_body<32>(s, x, stride, b, h, to);
}
__attribute__((target("avx2,fma"))) void sigmoid_avx2(float* x, int64_t n) { apply_body<32, false>(x, n); }
__attribute__((target("avx2,fma"))) void tanh_avx2(float* x, int64_t n) { apply_body<32, true>(x, n); }
#define TBX_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma")))
TBX_AVX512 void sigmoid_avx512(float* x, int64_t n) { apply_body<64, false>(x, n); }
TBX_AVX512 void tanh_avx512(float* x, int64_t n) { apply_body<64, true>(x, n); }
TBX_AVX512 void lstm_avx512(const float* s, const float* x, int64_t stride, float* c, float* h) {
  lstm_body<64>(s, x, stride, c, h);
}
TBX_AVX512 void gru_avx512(const float* s, const float* x, int64_t stride, const float* b, const float* h,
                           float* to) {
  gru_body<64>(s, x, stride, b, h, to);
}
#undef TBX_AVX512
#endif

struct Functions {
  void (*sigmoid)(float*, int64_t);
  void (*tanh)(float*, int64_t);
  void (*lstm)(const float*, const float*, int64_t, float*, float*);
  void (*gru)(const float*, const float*, int64_t, const float*, const float*, float*);
};

Functions best_functions() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return {sigmoid_avx512, tanh_avx512, lstm_avx512, gru_avx512};
  if (host_isa() == Isa::avx2) return {sigmoid_avx2, tanh_avx2, lstm_avx2, gru_avx2};
#endif
  return {sigmoid_plain, tanh_plain, lstm_plain, gru_plain};
}

const Functions& functions() {
  static const Functions best = best_functions();
  return best;
}

template <class T> T value_of(const Activation& f, T x) {
  T a = static_cast<T>(f.alpha), b = static_cast<T>(f.beta);
  switch (f.kind) {
  case ActivationKind::affine: return a * x + b;
  case ActivationKind::relu: return x < 0 ? T(0) : x;
  case ActivationKind::leaky_relu: return x < 0 ? a * x : x;
  case ActivationKind::thresholded_relu: return x > a || std::isnan(x) ? x : T(0);
  case ActivationKind::tanh: return std::tanh(x);
  case ActivationKind::scaled_tanh: return a * std::tanh(b * x);
  case ActivationKind::sigmoid: return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
  case ActivationKind::hard_sigmoid: {
    T y = a * x + b;
    return y < 0 ? T(0) : y > 1 ? T(1) : y;
  }
  case ActivationKind::elu: return x < 0 ? a * std::expm1(x) : x;
  case ActivationKind::softsign: return x / (1 + std::abs(x));
  case ActivationKind::softplus: return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
  }
  return x;
}

} // namespace

void apply(const Activation& activation, float* x, int64_t n) {
  if (activation.kind == ActivationKind::sigmoid) return functions().sigmoid(x, n);
  if (activation.kind == ActivationKind::tanh) return functions().tanh(x, n);
  for (int64_t i = 0; i < n; ++i) x[i] = value_of(activation, x[i]);
}

void plain_lstm_cell(const float* sums, const float* input, int64_t stride, float* c, float* h) {
  functions().lstm(sums, input, stride, c, h);
}

void plain_gru_cell(const float* sums, const float* input, int64_t stride, const float* bias, const float* h,
                    float* h_after) {
  functions().gru(sums, input, stride, bias, h, h_after);
}

void apply(const Activation& activation, double* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = value_of(activation, x[i]);
}

} // namespace tbx::extern_kernels::recurrent
