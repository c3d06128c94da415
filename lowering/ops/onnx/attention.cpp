// Attention of ONNX (since 23): heads in a dimension of their own or side by side, keys that heads share,
// masks, a past. What it gives besides, and what the kernel knows nothing of, runs through the body that ONNX
// defines.
#include <cmath>
#include <limits>
#include <optional>

#include "graph/function_body.h"
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

enum Input : uint8_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kNonpadLengths };

/// Scores are given out, their softmax is one of double, or lengths are those of each batch entry.
bool asks_for_more(OpContext& ctx) {
  const DType precision = ctx.attr_dtype("softmax_precision", DType::f32);
  if (ctx.wants(3) || ctx.has(kNonpadLengths) || (precision != DType::f32 && !is_half(precision)))
    return true;
  const DType type = ctx.dtype(kQ);
  if (type != DType::f32 && !is_half(type)) return true;
  for (int i : {kK, kV, kPastKey, kPastValue})
    if (ctx.has(i) && ctx.dtype(i) != type) return true;
  if (ctx.has(kMask) && ctx.dtype(kMask) != DType::boolean && ctx.dtype(kMask) != type) return true;
  return !(ctx.attr_float("scale", 1) >= 0) || !(ctx.attr_float("softcap", 0) >= 0);
}

/// Queries and the keys and values behind those of the past, as [B, H, S, D]; nullopt where sizes that the
/// kernel has to know are not known, or differ.
std::optional<AttentionCore> operands(OpContext& ctx) {
  const int rank = ctx.rank(kQ);
  if ((rank != 3 && rank != 4) || ctx.rank(kK) != rank || ctx.rank(kV) != rank) return std::nullopt;
  if (ctx.has(kPastKey) != ctx.has(kPastValue)) return std::nullopt;
  AttentionCore a;
  a.q = ctx.in(kQ), a.k = ctx.in(kK), a.v = ctx.in(kV);
  if (rank == 3) {
    a.q = split_heads(ctx, a.q, head_count(ctx, "q_num_heads"));
    a.k = split_heads(ctx, a.k, head_count(ctx, "kv_num_heads"));
    a.v = split_heads(ctx, a.v, head_count(ctx, "kv_num_heads"));
  }
  const SymInt heads = a.q.sizes()[1], shared = a.k.sizes()[1];
  if (!heads.is_constant() || !shared.is_constant() || !ir::provably_equal(shared, a.v.sizes()[1]) ||
      shared.constant() < 1 || heads.constant() % shared.constant() != 0 || !a.q.sizes()[3].is_constant())
    return std::nullopt;
  auto behind = [&](int past, TensorBox& x) {
    if (!ctx.has(past)) return true;
    if (ctx.rank(past) != 4) return false;
    for (int d : {0, 1, 3})
      if (!ir::provably_equal(ctx.sizes(past)[d], x.sizes()[d])) return false;
    x = join_tokens(ctx, {ctx.in(past), x});
    return true;
  };
  if (!behind(kPastKey, a.k) || !behind(kPastValue, a.v)) return std::nullopt;
  return a;
}

/// Query i sees the keys of the past and the new ones 0 to i, of these the last ones where there is a window.
bool take_sight(OpContext& ctx, AttentionCore& a, SymInt new_keys) {
  const int64_t left = ctx.attr_int("left_window_size", -1), right = ctx.attr_int("right_window_size", -1);
  a.causal = ctx.attr_int("is_causal", 0) != 0;
  if (!a.causal) return left < 0 && right < 0;
  if (left < -1 || right < -1) return false;
  if (left >= 0 && left < std::numeric_limits<int32_t>::max()) a.window = left + 1;
  if (ir::provably_equal(a.q.sizes()[2], new_keys)) return true; // the last query sees all keys
  if (ctx.has(kPastKey))
    a.starts = generate(ctx, DType::i32, {a.q.sizes()[0]}, [&](std::span<const SymInt>) {
      return to_compute(ctx.c.index(ctx.sizes(kPastKey)[2]), DType::i32);
    });
  else
    a.from_first = true;
  return true;
}

/// The mask as numbers to be added; false where its sizes are not known to be those of scores, or 1.
bool take_mask(OpContext& ctx, AttentionCore& a) {
  if (!ctx.has(kMask)) return true;
  TensorBox mask = ctx.in(kMask);
  if (mask.rank() < 2 || mask.rank() > 4) return false;
  const std::vector<int> outer = mask.rank() == 2 ? std::vector<int>{0, 1} : std::vector<int>{0};
  if (mask.rank() < 4) mask = ir::unsqueeze(ctx.program, mask, outer);
  const SymInts scores = {a.q.sizes()[0], a.q.sizes()[1], a.q.sizes()[2], a.k.sizes()[2]};
  for (int d = 0; d < 4; ++d) // a mask of fewer keys is none of all keys
    if (!ir::provably_equal(mask.sizes()[d], scores[d]) && (d == 3 || !mask.sizes()[d].is(1))) return false;
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  a.mask = mask.dtype() == DType::boolean ? map(ctx, DType::f32, mask,
                                                [&](Expr e) {
                                                  return ir::where(e, ctx.c.constant(DType::f32, 0),
                                                                   ctx.c.constant(DType::f32, kHidden));
                                                })
                                          : convert(ctx, mask, DType::f32);
  return true;
}

std::optional<Values> by_kernel(OpContext& ctx) {
  if (asks_for_more(ctx)) return std::nullopt;
  std::optional<AttentionCore> a = operands(ctx);
  const size_t tokens = ctx.rank(kK) == 3 ? 1 : 2; // a dimension
  if (!a || !take_sight(ctx, *a, ctx.sizes(kK)[tokens]) || !take_mask(ctx, *a)) return std::nullopt;
  const auto width = static_cast<double>(a->q.sizes()[3].constant());
  a->scale = ctx.attr_float("scale", static_cast<float>(1 / std::sqrt(width)));
  a->softcap = ctx.attr_float("softcap", 0);
  a->zero_hidden_rows = true;
  const TensorBox y = attend(ctx, *a);
  // What was joined as halves is so in memory, too.
  return Values{ctx.rank(kQ) == 3 ? join_heads(ctx, y) : y, shown_half(ctx, a->k), shown_half(ctx, a->v)};
}

Values attention(OpContext& ctx) {
  if (auto done = by_kernel(ctx)) return std::move(*done);
  std::optional<Graph> body = expand_function(ctx.graph, ctx.node);
  if (!body) ask_for_sizes("the operator's body depends on its shapes");
  Values inputs;
  for (int i = 0; i < ctx.num_inputs(); ++i) inputs.push_back(ctx.value(i));
  return ctx.lower_subgraph(std::make_shared<const Graph>(std::move(*body)), std::move(inputs));
}

} // namespace

void register_onnx_attention(Registry& r) {
  r.add("Attention", since(23), attention);
  r.mark(Trait::half_product, {"Attention"});
  r.mark(Trait::by_body, {"Attention"});
  r.masks(kMask, kMask + 1, {"Attention"});
  r.narrow(Narrow::follows, {"Attention"});
  r.need("Attention", kNonpadLengths, count_along(1, -2));
}

} // namespace tbx::lowering
