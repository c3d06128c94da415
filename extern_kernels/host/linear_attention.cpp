// LinearAttention of ai.onnx and com.microsoft: a matrix per head that every token changes and is read
// through. Tokens follow each other, so there is no loop nest over them; heads and batch entries are
// independent.
//
// Inputs, all f32: 0 = queries [batch, tokens, q_heads * dk], 1 = keys [batch, tokens, key heads * dk], 2 =
// values [batch, tokens, kv_heads * dv], 3 = state before the first token [window or none, batch, kv_heads,
// dk, dv], 4 = decay [batch, tokens, kv_heads or kv_heads * dk], 5 = beta [batch, tokens, kv_heads or 1]. 3
// to 5 may be absent. Outputs: [batch, tokens, max(q_heads, kv_heads) * dv], and the states after the last
// tokens, as 3.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/budget.h"
#include "base/error.h"
#include "base/isa.h"
#include "extern_kernels/host/host_kernel.h"
#include "extern_kernels/host/tasks.h"
#include "extern_kernels/vectors.h"

namespace tbx::extern_kernels {
namespace {

/// One step of one head. `state` is [dk, dv]; `queries` are `count` behind each other, `out` their results.
struct Step {
  int64_t dk, dv, count;
  float* state;
  const float *key, *value, *queries;
  const float* decay; ///< factors: one, or (`decay_per_key`) dk of them; null: none
  bool decay_per_key;
  bool delta; ///< what the state has for the key already is taken off the value
  float beta, scale;
  float* out;
};

/// The columns [j, j + V * lanes) of one step, in vectors that stay in registers.
template <class L, int V> [[gnu::always_inline]] inline void columns(const Step& given, int64_t j) {
  const Step s = given; // stores of vectors, which may alias anything, do not reach a copy
  constexpr int64_t kLanes = sizeof(L) / 4; // of float
  auto row = [&](int64_t i, int v) { return s.state + i * s.dv + j + v * kLanes; };
  auto factor = [&](int64_t i) { return s.decay ? s.decay[s.decay_per_key ? i : 0] : 1.0f; };
  L change[V] = {};
  if (s.delta)
    for (int64_t i = 0; i < s.dk; ++i) {
      const float key = s.key[i] * factor(i);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        L x;
        std::memcpy(&x, row(i, v), sizeof x);
        change[v] += x * key;
      }
    }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
    L value;
    std::memcpy(&value, s.value + j + v * kLanes, sizeof value);
    change[v] = s.delta ? (value - change[v]) * s.beta : value;
  }
  for (int64_t q = 0; q < s.count; ++q) {
    const float* query = s.queries + q * s.dk;
    L sum[V] = {};
    for (int64_t i = 0; i < s.dk; ++i) {
      const float key = s.key[i], decay = factor(i);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        L x;
        std::memcpy(&x, row(i, v), sizeof x);
        if (q == 0) { // on the way
          x = x * decay + change[v] * key;
          std::memcpy(row(i, v), &x, sizeof x);
        }
        sum[v] += x * query[i];
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      sum[v] *= s.scale;
      std::memcpy(s.out + q * s.dv + j + v * kLanes, &sum[v], sizeof sum[v]);
    }
  }
}

/// One body for all instruction sets, of vectors of `B` bytes.
template <int B> [[gnu::always_inline]] inline void step_body(const Step& s) {
  using Lanes = typename VectorOf<B>::Lanes;
  constexpr int64_t kLanes = B / 4;
  int64_t j = 0;
  for (; j + 4 * kLanes <= s.dv; j += 4 * kLanes) columns<Lanes, 4>(s, j);
  for (; j + kLanes <= s.dv; j += kLanes) columns<Lanes, 1>(s, j);
  for (; j < s.dv; ++j) columns<float, 1>(s, j);
}

void step_plain(const Step& s) { step_body<16>(s); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void step_avx2(const Step& s) { step_body<32>(s); }
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void step_avx512(const Step& s) {
  step_body<64>(s);
}
#endif

auto best_step() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return step_avx512;
  if (host_isa() >= Isa::avx2) return step_avx2;
#endif
  return step_plain;
}

const float* floats(const HostCall& call, int i) {
  return call.has(i) ? static_cast<const float*>(call.in(i).data) : nullptr;
}

} // namespace

void run_linear_attention(const HostCall& call) {
  static const auto advance = best_step();
  const int64_t q_heads = call.integer("q_heads"), heads = call.integer("kv_heads"),
                window = call.integer("window");
  const int64_t batch = call.in(0).sizes[0], tokens = call.in(0).sizes[1], dk = call.in(0).sizes[2] / q_heads,
                dv = call.in(2).sizes[2] / heads, keys = call.in(1).sizes[2];
  const bool decays = call.integer("decays") != 0, delta = call.integer("delta") != 0;
  TBX_MODEL(dk == 0 || (keys % dk == 0 && keys > 0 && heads % (keys / dk) == 0),
            "LinearAttention: the {} elements of a key are no divisor of {} heads of {}", keys, heads, dk);
  const int64_t key_heads = dk == 0 ? 1 : keys / dk, groups = std::max(q_heads, heads) / heads,
                out_width = std::max(q_heads, heads) * dv, slot = batch * heads * dk * dv;
  const int64_t decay_width = decays ? call.in(4).sizes[2] : heads,
                beta_width = delta ? call.in(5).sizes[2] : 1;
  TBX_MODEL(decay_width == heads || decay_width == heads * dk,
            "LinearAttention: the last dimension of decay is {}, expected {} or {}", decay_width, heads,
            heads * dk);
  TBX_MODEL(beta_width == heads || beta_width == 1,
            "LinearAttention: the last dimension of beta is {}, expected {} or 1", beta_width, heads);
  const bool per_key = decay_width != heads;
  float scale = static_cast<float>(call.real("scale"));
  if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(dk));
  const float *query = floats(call, 0), *key = floats(call, 1), *value = floats(call, 2),
              *past = floats(call, 3), *decay = floats(call, 4), *beta = floats(call, 5);
  auto *out = static_cast<float*>(call.out(0).data), *states = static_cast<float*>(call.out(1).data);
  const int64_t slots = std::max<int64_t>(window, 1);
  if (slot > 0) std::fill_n(states, slots * slot, 0.0f);
  for_each_task(batch * heads, [&](int64_t task) {
    const int64_t b = task / heads, h = task % heads;
    float* state = states + (slots - 1) * slot + task * dk * dv;
    if (past) std::copy_n(past + (slots - 1) * slot + task * dk * dv, dk * dv, state);
    std::vector<float> factors(static_cast<size_t>(per_key ? dk : 1));
    // Several queries read one state, or several states are read by one query.
    const int64_t first_query = q_heads >= heads ? h * groups : h * q_heads / heads;
    for (int64_t t = 0; t < tokens; ++t) {
      check_stop_often();
      const int64_t at = b * tokens + t;
      if (decays) {
        const float* from = decay + at * decay_width + (per_key ? h * dk : h);
        for (size_t i = 0; i < factors.size(); ++i) factors[i] = std::exp(from[i]);
      }
      Step step;
      step.dk = dk;
      step.dv = dv;
      step.count = groups;
      step.state = state;
      step.key = key + (at * key_heads + h * key_heads / heads) * dk;
      step.value = value + (at * heads + h) * dv;
      step.queries = query + (at * q_heads + first_query) * dk;
      step.decay = decays ? factors.data() : nullptr;
      step.decay_per_key = per_key;
      step.delta = delta;
      step.beta = delta ? beta[at * beta_width + (beta_width == 1 ? 0 : h)] : 1;
      step.scale = scale;
      step.out = out + at * out_width + h * groups * dv;
      advance(step);
      const int64_t to = slots - tokens + t;
      if (to >= 0 && to < slots - 1) std::copy_n(state, dk * dv, states + to * slot + task * dk * dv);
    }
  });
}

} // namespace tbx::extern_kernels
