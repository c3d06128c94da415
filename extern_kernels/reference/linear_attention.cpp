// LinearAttention token by token, in double. Operands as in host/linear_attention.cpp.
#include <tbb/parallel_for.h>

#include <cmath>

#include "extern_kernels/host_attribute.h"
#include "extern_kernels/reference/dense.h"
#include "extern_kernels/reference/host.h"

namespace tbx::extern_kernels {
namespace {

using Values = std::vector<double>;

void linear_attention(const HostProblem& p, const RunArgs& args) {
  const int64_t q_heads = integer(p, "q_heads"), heads = integer(p, "kv_heads"),
                slots = std::max<int64_t>(integer(p, "window"), 1);
  const bool decays = integer(p, "decays") != 0, delta = integer(p, "delta") != 0;
  const std::span<const TensorRef> in = args.inputs;
  const int64_t batch = in[0].sizes[0], tokens = in[0].sizes[1], dk = in[0].sizes[2] / q_heads,
                dv = in[2].sizes[2] / heads, keys = in[1].sizes[2];
  TBX_MODEL(dk == 0 || (keys % dk == 0 && keys > 0 && heads % (keys / dk) == 0),
            "LinearAttention: the {} elements of a key are no divisor of {} heads of {}", keys, heads, dk);
  const int64_t key_heads = dk == 0 ? 1 : keys / dk, out_heads = std::max(q_heads, heads),
                groups = out_heads / heads, slot = batch * heads * dk * dv;
  const int64_t decay_width = decays ? in[4].sizes[2] : heads, beta_width = delta ? in[5].sizes[2] : 1;
  TBX_MODEL(decay_width == heads || decay_width == heads * dk,
            "LinearAttention: the last dimension of decay is {}, expected {} or {}", decay_width, heads,
            heads * dk);
  TBX_MODEL(beta_width == heads || beta_width == 1,
            "LinearAttention: the last dimension of beta is {}, expected {} or 1", beta_width, heads);
  auto read = [&](size_t i) { return in.size() > i && in[i].data ? to_dense<double>(in[i]) : Values(); };
  const Values query = read(0), key = read(1), value = read(2), past = read(3), decay = read(4),
               beta = read(5);
  double scale = attribute<double>(p, "scale");
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(dk));
  Values out(static_cast<size_t>(batch * tokens * out_heads * dv), 0.0);
  Values states(static_cast<size_t>(slots * slot), 0.0);
  tbb::parallel_for(int64_t{0}, batch * heads, [&](int64_t task) {
    const int64_t b = task / heads, h = task % heads;
    const int64_t first_query = q_heads >= heads ? h * groups : h * q_heads / heads;
    double* state = states.data() + (slots - 1) * slot + task * dk * dv; // [dk, dv]
    if (!past.empty()) std::copy_n(past.data() + (slots - 1) * slot + task * dk * dv, dk * dv, state);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t at = b * tokens + t;
      const double* k = key.data() + (at * key_heads + h * key_heads / heads) * dk;
      for (int64_t i = 0; i < dk && decays; ++i) {
        const double factor = std::exp(decay[at * decay_width + (decay_width == heads ? h : h * dk + i)]);
        for (int64_t j = 0; j < dv; ++j) state[i * dv + j] *= factor;
      }
      for (int64_t j = 0; j < dv; ++j) {
        double change = value[(at * heads + h) * dv + j];
        if (delta) {
          for (int64_t i = 0; i < dk; ++i) change -= state[i * dv + j] * k[i];
          change *= beta[at * beta_width + (beta_width == 1 ? 0 : h)];
        }
        for (int64_t i = 0; i < dk; ++i) state[i * dv + j] += change * k[i];
      }
      for (int64_t g = 0; g < groups; ++g) {
        const double* q = query.data() + (at * q_heads + first_query + g) * dk;
        double* y = out.data() + (at * out_heads + h * groups + g) * dv;
        for (int64_t i = 0; i < dk; ++i)
          for (int64_t j = 0; j < dv; ++j) y[j] += scale * q[i] * state[i * dv + j];
      }
      const int64_t to = slots - tokens + t;
      if (to >= 0 && to < slots - 1) std::copy_n(state, dk * dv, states.data() + to * slot + task * dk * dv);
    }
  });
  from_dense(out, args.outputs[0]);
  from_dense(states, args.outputs[1]);
}

} // namespace

std::string supports_reference_linear_attention(const Problem& p, std::span<const OperandInfo>,
                                                std::span<const OperandInfo>, const Target&) {
  return is_host(p, "", "LinearAttention") || is_host(p, "com.microsoft", "LinearAttention")
             ? ""
             : "no linear attention";
}

std::unique_ptr<ExternKernel> make_reference_linear_attention(const Problem& p, std::span<const OperandInfo>,
                                                              std::span<const OperandInfo>) {
  return std::make_unique<PlainHost>(p, linear_attention);
}

} // namespace tbx::extern_kernels
