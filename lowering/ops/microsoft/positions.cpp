// com.microsoft RotaryEmbedding, MRotaryEmbedding (three positions per token) and RelativePositionBias.
#include <cmath>

#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"

namespace tbx::lowering {
namespace {

/// The number of heads of a [B, S, hidden] input: given, or hidden over what the caches turn.
int64_t count_heads(OpContext& ctx, const TensorBox& x, const TensorBox& cos) {
  int64_t heads = ctx.attr_int("num_heads", 0), width = ctx.attr_int("rotary_embedding_dim", 0);
  TBX_MODEL(heads >= 0 && width >= 0, "num_heads is {}, rotary_embedding_dim is {}", heads, width);
  TBX_MODEL(width == 0 || heads > 0, "rotary_embedding_dim is given without num_heads");
  if (heads > 0) return heads;
  int64_t head = 2 * known_size(cos.sizes()[1], "the width of cos_cache");
  int64_t hidden = known_size(x.sizes()[2], "the hidden size");
  TBX_MODEL(head > 0 && hidden % head == 0, "{} elements are not divisible into heads of {}", hidden, head);
  return hidden / head;
}

/// The input by heads [B, H, S, D], with what all rotations ask of their inputs.
TensorBox checked_heads(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &positions = ctx.in(1), &cos = ctx.in(2), &sin = ctx.in(3);
  TBX_MODEL(x.rank() == 3 || x.rank() == 4, "input has rank {}, expected 3 or 4", x.rank());
  TBX_MODEL(is_float(x.dtype()), "input is of type {}", name_of(x.dtype()));
  TBX_MODEL(cos.rank() == 2 && sin.rank() == 2, "cos_cache and sin_cache have ranks {} and {}, expected 2",
            cos.rank(), sin.rank());
  TBX_MODEL(positions.dtype() == DType::i64, "position_ids are of type {}, expected int64",
            name_of(positions.dtype()));
  const int64_t turned = ctx.attr_int("rotary_embedding_dim", 0);
  require_equal(ctx, cos.sizes()[1] * SymInt(2), turned > 0 ? SymInt(turned) : cos.sizes()[1] * SymInt(2),
                "width of cos_cache and half of rotary_embedding_dim");
  return x.rank() == 4 ? x : split_heads(ctx, x, count_heads(ctx, x, cos));
}

TensorBox in_shape_of(OpContext& ctx, const TensorBox& x, const TensorBox& heads) {
  return x.rank() == 4 ? heads : join_heads(ctx, heads);
}

std::vector<LoweredValue> rotary_embedding(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &positions = ctx.in(1), &cos = ctx.in(2), &sin = ctx.in(3);
  TensorBox heads = checked_heads(ctx);
  // One position: that of the first token of each sequence.
  const bool first_only = positions.rank() == 1;
  if (first_only) {
    require_equal(ctx, positions.sizes()[0], 1, "number of position_ids and 1");
  } else {
    TBX_MODEL(positions.rank() == 2, "position_ids have rank {}, expected 1 or 2", positions.rank());
    require_equal(ctx, positions.sizes()[0], heads.sizes()[0], "batch sizes of input and position_ids");
    require_equal(ctx, positions.sizes()[1], heads.sizes()[2], "lengths of input and position_ids");
  }
  auto position = [&](SymInt b, SymInt s) {
    const SymInt at[] = {first_only ? SymInt(0) : b, s};
    Expr e = positions.load(ctx.program, std::span(at, first_only ? 1 : 2));
    return first_only ? ir::add(e, ctx.c.index(s)) : e;
  };
  TensorBox y = rotated(ctx, heads, cos, sin, position, ctx.attr_int("interleaved", 0) != 0);
  return {in_shape_of(ctx, x, y)};
}

/// cos (or sin) of each token [B * S, r / 2], whose columns look up the time, height or width of the token.
TensorBox cache_of_tokens(OpContext& ctx, const TensorBox& cache, const std::vector<int64_t>& stream) {
  const TensorBox& positions = ctx.in(1);
  SymInt length = positions.sizes()[2];
  SymInts sizes{positions.sizes()[1] * length, cache.sizes()[1]};
  std::vector<int64_t> streams(stream);
  auto count = static_cast<int64_t>(streams.size());
  TensorBox which = ir::make_constant(ctx.program, Tensor::of_ints(streams));
  TensorBox y = generate(ctx, cache.dtype(), sizes, [&](std::span<const SymInt> at) {
    SymInt column = ctx.c.indirect(which.load(ctx.program, at.subspan(1, 1)), count, false);
    const SymInt token[] = {column, ir::floordiv(at[0], length), ir::mod(at[0], length)};
    Expr place = positions.load(ctx.program, token);
    const SymInt from[] = {ctx.c.indirect(place, cache.sizes()[0], false), at[1]};
    return cache.load(ctx.program, from);
  });
  realize(ctx, y, "angles of tokens");
  return y;
}

std::vector<LoweredValue> mrotary_embedding(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &positions = ctx.in(1);
  TensorBox heads = checked_heads(ctx);
  TBX_MODEL(positions.rank() == 3, "position_ids have rank {}, expected 3", positions.rank());
  require_equal(ctx, positions.sizes()[0], 3, "position_ids per token and 3");
  require_equal(ctx, positions.sizes()[1], heads.sizes()[0], "batch sizes of input and position_ids");
  require_equal(ctx, positions.sizes()[2], heads.sizes()[2], "lengths of input and position_ids");
  const int64_t half = known_size(ctx.sizes(2)[1], "the width of cos_cache");
  std::vector<int64_t> section = ctx.attr_ints("mrope_section");
  TBX_MODEL(section.size() == 3, "mrope_section has {} elements, expected 3", section.size());
  for (int64_t n : section) TBX_MODEL(n >= 0 && n <= half, "mrope_section has an element {}", n);
  TBX_MODEL(section[0] + section[1] + section[2] == half,
            "mrope_section adds up to {}, the caches have {} columns", section[0] + section[1] + section[2],
            half);
  const int64_t layout = ctx.attr_int("mrope_layout", 0);
  TBX_MODEL(layout == 0 || layout == 1, "mrope_layout is {}, expected 0 or 1", layout);
  std::vector<int64_t> stream(static_cast<size_t>(half), 0);
  for (int64_t j = 0; j < half; ++j) {
    if (layout == 0)
      stream[j] = j < section[0] ? 0 : j < section[0] + section[1] ? 1 : 2;
    else if (j % 3 != 0 && j < section[j % 3] * 3)
      stream[j] = j % 3;
  }
  TensorBox cos = cache_of_tokens(ctx, ctx.in(2), stream), sin = cache_of_tokens(ctx, ctx.in(3), stream);
  SymInt length = positions.sizes()[2];
  auto token = [&](SymInt b, SymInt s) { return ctx.c.index(b * length + s); };
  return {in_shape_of(ctx, x, rotated(ctx, heads, cos, sin, token, ctx.attr_int("interleaved", 0) != 0))};
}

/// Bias of scores by the distance between key and query, in buckets that grow with it. The table's shape is
/// [buckets, heads], but its elements lie head by head.
std::vector<LoweredValue> relative_position_bias(OpContext& ctx) {
  const TensorBox& table = ctx.in(0);
  TBX_MODEL(table.rank() == 2, "bias_table has rank {}, expected 2", table.rank());
  const int64_t all = known_size(table.sizes()[0], "the number of buckets");
  const int64_t farthest = ctx.required_int("max_distance");
  const bool both_ways = ctx.attr_int("is_bidirectional", 0) != 0;
  const int64_t buckets = both_ways ? all / 2 : all, exact = buckets / 2;
  TBX_MODEL(exact >= 1 && farthest > exact, "{} buckets for a max_distance of {}", all, farthest);
  SymInts sizes{1, table.sizes()[1]};
  for (int i : {1, 2}) {
    auto known = ctx.known(i);
    TBX_MODEL(ir::product(ctx.sizes(i)).is(1), "input {} is no scalar", i);
    sizes.push_back(
        known ? known->at(0)
              : sizes_at_run_time(ctx, ir::reshape(ctx.program, convert(ctx, ctx.in(i), DType::i64), {1}),
                                  "a length of RelativePositionBias")
                    .at(0));
  }
  TensorBox by_head = ir::reshape(ctx.program, table, {table.sizes()[1], all});
  TensorBox bucket = generate(ctx, DType::i64, {sizes[2], sizes[3]}, [&](std::span<const SymInt> at) {
    ir::Context& c = ctx.c;
    auto whole = [&](int64_t v) { return c.constant_int(DType::i64, v); };
    Expr distance = ir::sub(c.index(at[1]), c.index(at[0])), zero = whole(0);
    Expr ahead = ir::binary(Op::greater, distance, zero), back = ir::sub(zero, distance);
    distance = ir::where(ahead, both_ways ? distance : zero, back);
    const float step = std::log(static_cast<float>(farthest) / static_cast<float>(exact));
    Expr ratio = to_compute(ir::binary(Op::max, distance, whole(1)), DType::f32);
    ratio = ir::div(ratio, number(ratio, static_cast<double>(exact)));
    Expr far = ir::div(ir::unary(Op::log, ratio), number(ratio, step));
    far = to_compute(ir::mul(far, number(far, static_cast<double>(buckets - exact))), DType::i64);
    far = ir::binary(Op::min, ir::add(far, whole(exact)), whole(buckets - 1));
    Expr b = ir::where(ir::binary(Op::less, distance, whole(exact)), distance, far);
    return both_ways ? ir::add(b, ir::where(ahead, whole(buckets), zero)) : b;
  });
  realize(ctx, bucket, "buckets of distances");
  return {generate(ctx, table.dtype(), sizes, [&](std::span<const SymInt> at) {
    const SymInt from[] = {at[1], ctx.c.indirect(bucket.load(ctx.program, at.subspan(2)), all, false)};
    return by_head.load(ctx.program, from);
  })};
}

} // namespace

void register_positions(Registry& r) {
  r.add("RotaryEmbedding", since(1), rotary_embedding, "com.microsoft");
  r.add("MRotaryEmbedding", since(1), mrotary_embedding, "com.microsoft");
  r.add("RelativePositionBias", since(1), relative_position_bias, "com.microsoft");
  r.type_from(0, {"RotaryEmbedding", "MRotaryEmbedding", "RelativePositionBias"}, "com.microsoft");
  r.need("RotaryEmbedding", 1, position_in(1, 2), "com.microsoft");
}

} // namespace tbx::lowering
