// com.microsoft LongformerAttention: a token sees a window around it and the global tokens, wherever they
// are. These see all tokens, in projections of their own.
#include <algorithm>
#include <cmath>

#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

enum Input : uint8_t { kX, kWeight, kBias, kMask, kGlobalWeight, kGlobalBias, kGlobal };

void check_inputs(OpContext& ctx) {
  constexpr int kRanks[] = {3, 2, 1, 2, 2, 1, 2};
  constexpr const char* kNames[] = {"input",         "weight",      "bias",  "mask",
                                    "global_weight", "global_bias", "global"};
  for (int i = kX; i <= kGlobal; ++i) {
    TBX_MODEL(ctx.rank(i) == kRanks[i], "{} has rank {}, expected {}", kNames[i], ctx.rank(i), kRanks[i]);
    const DType type = i == kGlobal ? DType::i32 : ctx.dtype(kX);
    TBX_MODEL(ctx.dtype(i) == type, "{} is of type {}, expected {}", kNames[i], name_of(ctx.dtype(i)),
              name_of(type));
  }
  TBX_MODEL(is_float(ctx.dtype(kX)), "input is of type {}", name_of(ctx.dtype(kX)));
  const SymInts& x = ctx.in(kX).sizes();
  for (int i : {kMask, kGlobal})
    for (size_t d : {0, 1})
      require_equal(ctx, ctx.sizes(i)[d], x[d], fmt::format("sizes of input and {}", kNames[i]));
  for (int i : {kWeight, kGlobalWeight}) {
    require_equal(ctx, ctx.sizes(i)[0], x[2], fmt::format("width of input and rows of {}", kNames[i]));
    require_equal(ctx, ctx.sizes(i)[1], x[2] * SymInt(3),
                  fmt::format("columns of {} and three widths", kNames[i]));
    require_equal(ctx, ctx.sizes(i + 1)[0], ctx.sizes(i)[1],
                  fmt::format("length of {} and columns of {}", kNames[i + 1], kNames[i]));
  }
}

/// Attention [B, S, hidden] of all tokens to those that `mask` leaves, in the projections of this weight.
TensorBox attend_all(OpContext& ctx, int weight, int64_t heads, const TensorBox& mask) {
  const TensorBox& x = ctx.in(kX);
  const int64_t hidden = known_size(x.sizes()[2], "the hidden size");
  TBX_MODEL(hidden % heads == 0, "{} columns are not divisible into {} heads", hidden, heads);
  const TensorBox qkv = matrix_product(ctx, x, ctx.in(weight), &ctx.in(weight + 1), 1, 1, x.dtype());
  auto part = [&](int64_t i) {
    return split_heads(ctx, ir::slice(ctx.program, qkv, 2, i * hidden, 1, hidden), heads);
  };
  AttentionCore a;
  a.q = part(0);
  a.k = part(1);
  a.v = part(2);
  a.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, hidden / heads))));
  a.mask = mask;
  return join_heads(ctx, attend(ctx, a));
}

std::vector<LoweredValue> longformer_attention(OpContext& ctx) {
  ir::Program& p = ctx.program;
  ir::Context& c = ctx.c;
  check_inputs(ctx);
  const int64_t heads = head_count(ctx, "num_heads"), window = ctx.required_int("window");
  TBX_MODEL(window > 0, "window is {}", window);
  const TensorBox &x = ctx.in(kX), &flags = ctx.in(kGlobal);
  const SymInt batch = x.sizes()[0], length = x.sizes()[1];
  const TensorBox padding = convert(ctx, ctx.in(kMask), DType::f32); // added to scores of keys
  auto is_set = [&](const TensorBox& of, SymInt b, SymInt i) {
    const SymInt at[] = {b, i};
    Expr e = of.load(p, at);
    return ir::binary(Op::not_equal, e, number(e, 0));
  };
  const TensorBox near =
      generate(ctx, DType::f32, {batch, 1, length, length}, [&](std::span<const SymInt> at) {
        const SymInt apart = at[3] - at[2], from[] = {at[0], at[3]};
        Expr seen = ir::binary(
            Op::logical_and, ir::binary(Op::less_equal, c.index(apart), c.constant_int(DType::i64, window)),
            ir::binary(Op::greater_equal, c.index(apart), c.constant_int(DType::i64, -window)));
        seen = ir::binary(Op::logical_or, seen, is_set(flags, at[0], at[3]));
        return ir::where(seen, padding.load(p, from), c.constant(DType::f32, -HUGE_VAL));
      });
  const TensorBox local = attend_all(ctx, kWeight, heads, near);
  const auto known = ctx.constant(kGlobal);
  const bool none =
      known && std::ranges::all_of(known->as<int32_t>(), [](int32_t flag) { return flag == 0; });
  const TensorBox global =
      none ? local : attend_all(ctx, kGlobalWeight, heads, ir::reshape(p, padding, {batch, 1, 1, length}));
  // What is masked is 0, as in the networks that this operator was made for.
  return {generate(ctx, x.dtype(), x.sizes(), [&](std::span<const SymInt> at) {
    Expr far = global.load(p, at);
    Expr y = ir::where(is_set(flags, at[0], at[1]), far, local.load(p, at));
    return ir::where(is_set(padding, at[0], at[1]), number(y, 0), y);
  })};
}

} // namespace

void register_longformer_attention(Registry& r) {
  r.add("LongformerAttention", since(1), longformer_attention, "com.microsoft");
  r.type_from(0, {"LongformerAttention"}, "com.microsoft");
}

} // namespace tbx::lowering
