// LinearAttention of ai.onnx and com.microsoft: shapes checked, then a kernel (extern_kernels/host/
// linear_attention.cpp) that computes in f32 whatever the types are.
#include <algorithm>

#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

void require(OpContext& ctx, int i, const char* name, int rank) {
  TBX_MODEL(ctx.has(i), "{} is missing", name);
  TBX_MODEL(is_float(ctx.dtype(i)) && ctx.dtype(i) != DType::f64, "{} is of type {}", name,
            name_of(ctx.dtype(i)));
  TBX_MODEL(ctx.rank(i) == rank, "{} has rank {}, expected {}", name, ctx.rank(i), rank);
}

std::vector<LoweredValue> linear_attention(OpContext& ctx) {
  const std::string rule = ctx.attr_string("update_rule", "gated_delta");
  const bool decays = rule == "gated" || rule == "gated_delta",
             delta = rule == "delta" || rule == "gated_delta";
  TBX_MODEL(decays || delta || rule == "linear",
            "update_rule is '{}', expected linear, gated, delta or gated_delta", rule);
  const bool microsoft = !ctx.node.domain.empty();
  const int64_t q_heads = head_count(ctx, "q_num_heads"), heads = head_count(ctx, "kv_num_heads"),
                window = microsoft ? ctx.attr_int("state_window", 0) : 0;
  TBX_MODEL(q_heads % heads == 0 || (microsoft && heads % q_heads == 0),
            "{} heads of queries and {} of keys and values: one has to be a multiple of the other", q_heads,
            heads);
  TBX_MODEL(window >= 0 && window <= 8, "state_window is {}, expected 0 to 8", window);
  const char* const names[] = {"query", "key", "value", "past_state", "decay", "beta"};
  const bool used[] = {true, true, true, ctx.has(3), decays, delta};
  for (int i = 0; i < 6; ++i)
    if (used[i]) require(ctx, i, names[i], i != 3 ? 3 : window ? 5 : 4);
  const SymInts q = ctx.sizes(0), k = ctx.sizes(1), v = ctx.sizes(2);
  const SymInt dk = ir::floordiv(q[2], q_heads), dv = ir::floordiv(v[2], heads);
  require_equal(ctx, ir::mod(q[2], q_heads), 0, "the last dimension of query and a multiple of its heads");
  require_equal(ctx, ir::mod(v[2], heads), 0, "the last dimension of value and a multiple of its heads");
  if (!microsoft)
    require_equal(ctx, k[2], dk * SymInt(heads), "the last dimension of key and kv_num_heads * head size");
  for (int i : {1, 2, 4, 5})
    for (int d : {0, 1})
      if (used[i])
        require_equal(ctx, ctx.sizes(i)[d], q[d], fmt::format("dimension {} of {} and query", d, names[i]));
  SymInts state{q[0], heads, dk, dv};
  if (window) state.insert(state.begin(), window);
  if (used[3])
    for (size_t d = 0; d < state.size(); ++d)
      require_equal(ctx, ctx.sizes(3)[d], state[d],
                    fmt::format("dimension {} of past_state and the state", d));
  std::vector<std::optional<TensorBox>> inputs(6);
  for (int i = 0; i < 6; ++i)
    if (used[i]) inputs[static_cast<size_t>(i)] = convert(ctx, ctx.in(i), DType::f32);
  auto made = host_call(
      ctx, inputs, {{DType::f32, {q[0], q[1], dv * SymInt(std::max(q_heads, heads))}}, {DType::f32, state}},
      {{"q_heads", q_heads},
       {"kv_heads", heads},
       {"window", window},
       {"decays", int64_t{decays}},
       {"delta", int64_t{delta}},
       {"scale", static_cast<double>(ctx.attr_float("scale", 0))}});
  const DType state_type = used[3] ? ctx.dtype(3) : ctx.dtype(0);
  return {convert(ctx, made[0].tensor, ctx.dtype(0)), convert(ctx, made[1].tensor, state_type)};
}

} // namespace

void register_linear_attention(Registry& r) {
  r.add("LinearAttention", since(27), linear_attention);
  r.add("LinearAttention", since(1), linear_attention, "com.microsoft");
  r.mark(Trait::by_body, {"LinearAttention"});
  r.type_from(0, {"LinearAttention"}, "com.microsoft");
}

} // namespace tbx::lowering
