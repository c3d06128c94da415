#include "extern_kernels/post_ops.h"

#include <cmath>

#include "base/isa.h"
#include "extern_kernels/vector_activations.h"

namespace tbx::extern_kernels {
namespace {

// One body for all instruction sets, of vectors of `B` bytes, inlined into a function per target.

template <int B, class F> [[gnu::always_inline]] inline void each(float* x, int64_t n, F&& f) {
  for (int64_t i = 0; i < n; i += B / 4) {
    typename VectorOf<B>::Lanes v;
    __builtin_memcpy(&v, x + i, B);
    f(v);
    __builtin_memcpy(x + i, &v, B);
  }
}

template <int B> [[gnu::always_inline]] inline void clip(typename VectorOf<B>::Lanes& v, float lo, float hi) {
  using Lanes = typename VectorOf<B>::Lanes;
  v = v < lo ? Lanes{} + lo : v;
  v = v > hi ? Lanes{} + hi : v;
}

template <int B> [[gnu::always_inline]] inline void gelu(float* x, int64_t n) {
  constexpr int64_t kLanes = B / 4, kTogether = B == 64 ? 8 : 4; // constants and these fill the registers
  using Lanes = typename VectorOf<B>::Lanes;
  for (; n > (kTogether - 1) * kLanes; n -= kTogether * kLanes, x += kTogether * kLanes) {
    Lanes v[kTogether];
#pragma GCC unroll 8
    for (int i = 0; i < kTogether; ++i) __builtin_memcpy(&v[i], x + i * kLanes, B);
    gelu_of<B>(v);
#pragma GCC unroll 8
    for (int i = 0; i < kTogether; ++i) __builtin_memcpy(x + i * kLanes, &v[i], B);
  }
  each<B>(
      x, n, [&](Lanes & v) __attribute__((always_inline)) {
        Lanes one[1] = {v};
        gelu_of<B>(one);
        v = one[0];
      });
}

template <int B> [[gnu::always_inline]] inline void activate_body(const PostOp& op, float* x, int64_t n) {
  using Lanes = typename VectorOf<B>::Lanes;
#define TBX_EACH each<B>(x, n, [&](Lanes & v) __attribute__((always_inline))
  const float alpha = op.alpha, beta = op.beta;
  switch (op.kind) {
  case PostOp::relu: return TBX_EACH { v = v < 0 ? Lanes{} : v;
    });
  case PostOp::leaky_relu: return TBX_EACH { v = v < 0 ? v * alpha : v;
    });
  case PostOp::clip: return TBX_EACH { clip<B>(v, alpha, beta);
    });
  case PostOp::linear: return TBX_EACH { v = v * alpha + beta;
    });
  case PostOp::sigmoid: return TBX_EACH { sigmoid_of<B>(v);
    });
  case PostOp::tanh: return TBX_EACH { tanh_of<B>(v);
    });
  case PostOp::silu:
    return TBX_EACH {
      Lanes gate = v * alpha;
      sigmoid_of<B>(gate);
      v = v * gate;
    });
  case PostOp::gelu_tanh: // (1 + tanh(u)) / 2 is the sigmoid of 2u
    return TBX_EACH {
      Lanes gate = static_cast<float>(2 * M_2_SQRTPI * M_SQRT1_2) * (v + 0.044715f * (v * v * v));
      sigmoid_of<B>(gate);
      v = v * gate;
    });
  case PostOp::gelu_erf: return gelu<B>(x, n);
  case PostOp::hard_sigmoid:
    return TBX_EACH {
      v = v * alpha + beta;
      clip<B>(v, 0, 1);
    });
  case PostOp::hard_swish:
    return TBX_EACH {
      Lanes gate = v * (1.0f / 6) + 0.5f;
      clip<B>(gate, 0, 1);
      v = v * gate;
    });
  case PostOp::round: // to even; larger ones are whole
    return TBX_EACH {
      const Lanes a = v < 0 ? -v : v, whole = (a + 0x1p23f) - 0x1p23f;
      v = a < 0x1p23f ? (v < 0 ? -whole : whole) : v;
    });
  default: return; // those with an operand
  }
#undef TBX_EACH
}

template <class V> [[gnu::always_inline]] inline void combine_one(PostOp::Kind kind, V& x, const V& y) {
  switch (kind) {
  case PostOp::sub: x = x - y; return;
  case PostOp::mul: x = x * y; return;
  case PostOp::div: x = x / y; return;
  default: x = x + y; return;
  }
}

template <int B>
[[gnu::always_inline]] inline void combine_body(PostOp::Kind kind, float* x, const float* operand,
                                                int64_t step, int64_t n) {
  using Lanes = typename VectorOf<B>::Lanes;
  int64_t i = 0;
  for (; step <= 1 && step >= 0 && i + B / 4 <= n; i += B / 4) {
    Lanes v, w;
    __builtin_memcpy(&v, x + i, B);
    if (step == 1)
      __builtin_memcpy(&w, operand + i, B);
    else
      w = Lanes{} + *operand;
    combine_one(kind, v, w);
    __builtin_memcpy(x + i, &v, B);
  }
  for (; i < n; ++i) combine_one(kind, x[i], operand[i * step]);
}

struct Functions {
  void (*activate)(const PostOp&, float*, int64_t);
  void (*combine)(PostOp::Kind, float*, const float*, int64_t, int64_t);
};

// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_FUNCTIONS(name, target, bytes)                                                                   \
  target void activate_##name(const PostOp& op, float* x, int64_t n) { activate_body<bytes>(op, x, n); }     \
  target void combine_##name(PostOp::Kind kind, float* x, const float* operand, int64_t step, int64_t n) {   \
    combine_body<bytes>(kind, x, operand, step, n);                                                          \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_FUNCTIONS(plain, , 16)
#if defined(__x86_64__)
TBX_FUNCTIONS(avx2, __attribute__((target("avx2,fma"))), 32)
TBX_FUNCTIONS(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), 64)
#endif
#undef TBX_FUNCTIONS

const Functions& functions() {
  static const Functions best = []() -> Functions {
#if defined(__x86_64__)
    switch (host_isa()) {
    case Isa::avx512: return {activate_avx512, combine_avx512};
    case Isa::avx2: return {activate_avx2, combine_avx2};
    case Isa::sse: break;
    }
#endif
    return {activate_plain, combine_plain};
  }();
  return best;
}

} // namespace

void activate(const PostOp& op, float* x, int64_t n) { functions().activate(op, x, n); }

void combine(PostOp::Kind kind, float* x, const float* operand, int64_t step, int64_t n) {
  functions().combine(kind, x, operand, step, n);
}

} // namespace tbx::extern_kernels
