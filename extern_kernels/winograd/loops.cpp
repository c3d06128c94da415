#include "extern_kernels/winograd/loops.h"

#include <algorithm>
#include <cstring>

#include "base/isa.h"
#include "extern_kernels/vector_activations.h"
#include "extern_kernels/vector_tile.h"
#include "extern_kernels/winograd/transform.h"

namespace tbx::extern_kernels::winograd {
namespace {

template <int Bytes> struct Vector {
  using Lanes = typename VectorOf<Bytes>::Lanes;
  static constexpr int64_t count = Bytes / sizeof(float);
};

template <class V> [[gnu::always_inline]] inline void load(V& v, const float* from) {
  std::memcpy(&v, from, sizeof v);
}
template <class V> [[gnu::always_inline]] inline void store(const V& v, float* to) {
  std::memcpy(to, &v, sizeof v);
}
template <class V> [[gnu::always_inline]] inline void load(V& v, const float* from, int64_t count) {
  if (count * sizeof(float) >= sizeof v) return load(v, from);
  v = V{};
  std::memcpy(&v, from, static_cast<size_t>(count) * sizeof(float));
}
template <class V> [[gnu::always_inline]] inline void store(const V& v, float* to, int64_t count) {
  std::memcpy(to, &v, std::min(sizeof v, static_cast<size_t>(count) * sizeof(float)));
}

template <int Bytes, int M>
[[gnu::always_inline]] inline void input_body(const float* const* pixels, int64_t channels, float* to,
                                              int64_t step) {
  using V = typename Vector<Bytes>::Lanes;
  constexpr int kSpan = span_of(M);
  const int64_t end = (channels + kLine - 1) / kLine * kLine;
  for (int64_t c = 0; c < end; c += Vector<Bytes>::count) {
    V d[kSpan * kSpan], t[kSpan * kSpan];
    const int64_t left = channels - c;
    if (left >= Vector<Bytes>::count) {
#pragma GCC unroll 36
      for (int i = 0; i < kSpan * kSpan; ++i) load(d[i], pixels[i] + c);
    } else {
      for (int i = 0; i < kSpan * kSpan; ++i) load(d[i], pixels[i] + c, std::max<int64_t>(left, 0));
    }
#pragma GCC unroll 6
    for (int i = 0; i < kSpan; ++i) transform_input<M, kSpan>(d + i, t + i);
#pragma GCC unroll 6
    for (int i = 0; i < kSpan; ++i) {
      V row[kSpan];
      transform_input<M, 1>(t + i * kSpan, row);
#pragma GCC unroll 6
      for (int j = 0; j < kSpan; ++j) store(row[j], to + (i * kSpan + j) * step + c);
    }
  }
}

/// `Most`: rows whose sums leave registers for the operands. `count` is at most that.
template <int Bytes, int Most>
[[gnu::always_inline]] inline void multiply_few(const float* rows, int64_t row_step, int count, int64_t depth,
                                                const float* panel, int64_t columns, float* sums, bool more,
                                                FetchLines beside) {
  constexpr int64_t kLanes = Vector<Bytes>::count;
  if (count == Most) {
    int64_t j = 0;
    for (; j + kLanes < columns; j += 2 * kLanes)
      multiply_tile<Bytes, Most, 2, kPanel>(rows, row_step, depth, panel + j, more ? sums + j : nullptr,
                                            kPanel, sums + j, kPanel, beside);
    if (j < columns)
      multiply_tile<Bytes, Most, 1, kPanel>(rows, row_step, depth, panel + j, more ? sums + j : nullptr,
                                            kPanel, sums + j, kPanel, beside);
    return;
  }
  if constexpr (Most > 1)
    multiply_few<Bytes, Most - 1>(rows, row_step, count, depth, panel, columns, sums, more, beside);
}

template <int Bytes, int Most>
[[gnu::always_inline]] inline void multiply_body(const float* rows, int64_t row_step, int count,
                                                 int64_t depth, const float* panel, int64_t columns,
                                                 float* sums, bool more, FetchLines beside) {
  for (int left = (count + Most - 1) / Most; left > 0; --left) { // parts as large as each other
    const int some = (count + left - 1) / left;
    multiply_few<Bytes, Most>(rows, row_step, some, depth, panel, columns, sums, more, beside);
    count -= some, rows += some * row_step, sums += some * kPanel;
  }
}

template <int Bytes, int Count, class V>
[[gnu::always_inline]] inline void apply(const TileOp& op, int64_t channel, int64_t left, V* y) {
  constexpr int64_t kLanes = Vector<Bytes>::count;
  auto each = [&](auto&& f) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) f(y[i]);
  };
  auto with_operand = [&](auto&& f) __attribute__((always_inline)) {
    for (int i = 0; i < Count; ++i) {
      if (!op.operand[i]) continue;
      V x;
      if (op.channel_step == 1)
        load(x, op.operand[i] + channel, left);
      else
        for (int64_t l = 0; l < kLanes; ++l)
          x[l] = l < left ? op.operand[i][(channel + l) * op.channel_step] : 0.0f;
      f(y[i], x);
    }
  };
  const float alpha = op.alpha, beta = op.beta;
  switch (op.kind) {
  case PostOp::relu: return each([](V& v) { v = v < 0 ? V{} : v; });
  case PostOp::leaky_relu: return each([&](V& v) { v = v < 0 ? v * alpha : v; });
  case PostOp::clip:
    return each([&](V& v) {
      v = v < alpha ? V{} + alpha : v;
      v = v > beta ? V{} + beta : v;
    });
  case PostOp::linear: return each([&](V& v) { v = v * alpha + beta; });
  case PostOp::hard_sigmoid:
    return each([&](V& v) {
      v = v * alpha + beta;
      v = v < 0 ? V{} : v;
      v = v > 1 ? V{} + 1 : v;
    });
  case PostOp::hard_swish:
    return each([&](V& v) {
      V gate = v * (1.0f / 6) + 0.5f;
      gate = gate < 0 ? V{} : gate;
      gate = gate > 1 ? V{} + 1 : gate;
      v = v * gate;
    });
  case PostOp::sigmoid:
    for (int i = 0; i < Count; ++i) sigmoid_of<Bytes>(y[i]);
    return;
  case PostOp::silu:
    for (int i = 0; i < Count; ++i) {
      V gate = y[i] * alpha;
      sigmoid_of<Bytes>(gate);
      y[i] = y[i] * gate;
    }
    return;
  case PostOp::add:
  case PostOp::sum: return with_operand([](V& v, const V& x) { v = v + x; });
  case PostOp::sub: return with_operand([](V& v, const V& x) { v = v - x; });
  case PostOp::mul: return with_operand([](V& v, const V& x) { v = v * x; });
  case PostOp::div: return with_operand([](V& v, const V& x) { v = v / x; });
  default: return; // refused_op
  }
}

/// Bias, post-operations and the store of one vector of channels.
template <int Bytes, int Count, class V>
[[gnu::always_inline]] inline void finish(const TileOutput& tile, int64_t c, V* y) {
  const int64_t left = tile.channels - c;
  if (tile.bias) {
    V bias;
    load(bias, tile.bias + c, left);
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i) y[i] = y[i] + bias;
  }
  for (const TileOp& op : tile.ops) apply<Bytes, Count>(op, tile.first + c, left, y);
  if (left >= Vector<Bytes>::count) {
#pragma GCC unroll 16
    for (int i = 0; i < Count; ++i)
      if (tile.results[i]) store(y[i], tile.results[i] + c);
  } else {
    for (int i = 0; i < Count; ++i)
      if (tile.results[i]) store(y[i], tile.results[i] + c, left);
  }
}

template <int Bytes, int M>
[[gnu::always_inline]] inline void results(const TileOutput& tile, int64_t c,
                                           typename Vector<Bytes>::Lanes* y) {
  using V = typename Vector<Bytes>::Lanes;
  constexpr int kSpan = span_of(M);
  V t[M * kSpan];
#pragma GCC unroll 6
  for (int i = 0; i < kSpan; ++i) {
    V p[kSpan];
#pragma GCC unroll 6
    for (int j = 0; j < kSpan; ++j) load(p[j], tile.sums + (j * kSpan + i) * tile.sums_step + c);
    transform_output<M, 1, kSpan>(p, t + i);
  }
#pragma GCC unroll 4
  for (int i = 0; i < M; ++i) transform_output<M, 1, 1>(t + i * kSpan, y + i * M);
}

template <int Bytes, int M> [[gnu::always_inline]] inline bool output_body(const TileOutput& tile) {
  using V = typename Vector<Bytes>::Lanes;
  constexpr int kCount = M * M, kVectors = kPanel / Vector<Bytes>::count;
  V y[kVectors][kCount], bad{};
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    if (v * Vector<Bytes>::count >= tile.channels) break;
    results<Bytes, M>(tile, v * Vector<Bytes>::count, y[v]);
#pragma GCC unroll 16
    for (int i = 0; i < kCount; ++i) bad = bad + y[v][i] * 0.0f;
  }
  const auto differs = bad != bad;
  int32_t any = 0;
  for (int l = 0; l < Vector<Bytes>::count; ++l) any |= differs[l];
  if (any) return false;
  for (int v = 0; v < kVectors; ++v)
    if (v * Vector<Bytes>::count < tile.channels) finish<Bytes, kCount>(tile, v * Vector<Bytes>::count, y[v]);
  return true;
}

template <int Bytes, int M> [[gnu::always_inline]] inline void store_body(const TileOutput& tile) {
  using V = typename Vector<Bytes>::Lanes;
  for (int64_t c = 0; c < tile.channels; c += Vector<Bytes>::count) {
    V y[M * M];
    for (int i = 0; i < M * M; ++i) load(y[i], tile.sums + i * tile.sums_step + c);
    finish<Bytes, M * M>(tile, c, y);
  }
}

// One body for all instruction sets: what it becomes is decided by the target of the function around it.
// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_LOOPS(name, target, bytes, rows_at_once)                                                         \
  template <int M>                                                                                           \
  target void input_##name(const float* const* pixels, int64_t channels, float* to, int64_t step) {          \
    input_body<bytes, M>(pixels, channels, to, step);                                                        \
  }                                                                                                          \
  target void multiply_##name(const float* rows, int64_t row_step, int count, int64_t depth,                 \
                              const float* panel, int64_t columns, float* sums, bool more,                   \
                              FetchLines beside) {                                                           \
    multiply_body<bytes, rows_at_once>(rows, row_step, count, depth, panel, columns, sums, more, beside);    \
  }                                                                                                          \
  template <int M> target bool output_##name(const TileOutput& tile) { return output_body<bytes, M>(tile); } \
  template <int M> target void store_##name(const TileOutput& tile) { store_body<bytes, M>(tile); }          \
  template <int M> Loops loops_##name() {                                                                    \
    return {input_##name<M>, multiply_##name, output_##name<M>, store_##name<M>};                            \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_LOOPS(plain, , 16, 6)
#if defined(__x86_64__)
TBX_LOOPS(avx2, __attribute__((target("avx2,fma"))), 32, 6)
TBX_LOOPS(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), 64, 14)
#endif
#undef TBX_LOOPS

template <int M> Loops best() {
#if defined(__x86_64__)
  switch (host_isa()) {
  case Isa::avx512: return loops_avx512<M>();
  case Isa::avx2: return loops_avx2<M>();
  case Isa::sse: break;
  }
#endif
  return loops_plain<M>();
}

} // namespace

const Loops& loops(int m) {
  static const Loops two = best<2>(), four = best<4>();
  return m == 2 ? two : four;
}

const char* refused_op(PostOp::Kind kind) {
  switch (kind) {
  case PostOp::gelu_erf:
  case PostOp::gelu_tanh: return "gelu";
  case PostOp::tanh: return "tanh";
  case PostOp::round: return "rounding";
  default: return nullptr;
  }
}

} // namespace tbx::extern_kernels::winograd
