// com.microsoft EmbedLayerNormalization and QEmbedLayerNormalization.
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

/// Row `index` (i64) of table [n, H] at column `j`.
Expr row_of(OpContext& ctx, const TensorBox& table, Expr index, SymInt j) {
  const SymInt at[] = {ctx.c.indirect(index, table.sizes()[0], false), j};
  return table.load(ctx.program, at);
}

/// Where the inputs of an embedding are, and its tables and parameters as floats.
struct Embedding {
  int ids = 0, segments = 1, mask = 7, positions = -1;
  TensorBox words, places, kinds, gamma, beta; ///< kinds may be undefined
};

/// Normalised sum of embeddings, number of tokens that a mask keeps, and the sum.
std::vector<LoweredValue> embedded(OpContext& ctx, const Embedding& e) {
  const TensorBox& ids = ctx.in(e.ids);
  TBX_MODEL(ids.rank() == 2, "input_ids have rank {}, expected 2", ids.rank());
  TBX_MODEL(ctx.has(e.segments) == e.kinds.defined(),
            "segment_ids and segment_embedding must be given together");
  for (int i : {e.ids, e.segments, e.mask, e.positions})
    if (i >= 0 && ctx.has(i))
      TBX_MODEL(ctx.dtype(i) == DType::i32 || ctx.dtype(i) == DType::i64, "input {} is of type {}", i,
                name_of(ctx.dtype(i)));
  SymInts sizes = ids.sizes();
  for (const TensorBox* table : {&e.words, &e.places, &e.kinds}) {
    if (!table->defined()) continue;
    TBX_MODEL(table->rank() == 2, "an embedding has rank {}, expected 2", table->rank());
    TBX_MODEL(table->dtype() == e.words.dtype() && is_float(table->dtype()), "an embedding is of type {}",
              name_of(table->dtype()));
    require_equal(ctx, table->sizes()[1], e.words.sizes()[1], "widths of embeddings");
  }
  for (int i : {e.segments, e.mask}) {
    if (!ctx.has(i)) continue;
    TBX_MODEL(ctx.rank(i) == 2, "input {} has rank {}, expected 2", i, ctx.rank(i));
    for (int d : {0, 1}) require_equal(ctx, ctx.sizes(i)[d], sizes[d], "shapes of ids and their companions");
  }
  sizes.push_back(e.words.sizes()[1]);
  const bool has_positions = e.positions >= 0 && ctx.has(e.positions);
  TensorBox positions;
  if (has_positions) {
    positions = ctx.in(e.positions);
    TBX_MODEL(positions.rank() == 2, "position_ids have rank {}, expected 2", positions.rank());
    positions = ir::expand(ctx.program, positions, {sizes[0], sizes[1]}); // one row serves all
  }
  ir::Program& p = ctx.program;
  auto element = [&](int i, std::span<const SymInt> at) {
    return to_compute(ctx.in(i).load(p, at), DType::i64);
  };
  TensorBox sum = generate(ctx, e.words.dtype(), sizes, [&](std::span<const SymInt> at) {
    auto token = at.first(2);
    Expr place = ctx.c.index(at[1]);
    if (has_positions) place = to_compute(positions.load(p, token), DType::i64);
    Expr v = ir::add(row_of(ctx, e.words, element(e.ids, token), at[2]), row_of(ctx, e.places, place, at[2]));
    if (e.kinds.defined()) v = ir::add(v, row_of(ctx, e.kinds, element(e.segments, token), at[2]));
    return v;
  });
  realize(ctx, sum, "sum of embeddings");
  std::vector<LoweredValue> out =
      lower_as(ctx, "LayerNormalization", 17, {sum, e.gamma, e.beta},
               {{"axis", int64_t{-1}}, {"epsilon", ctx.attr_float("epsilon", 1e-12f)}});
  out.resize(1);
  const DType count_type = ids.dtype();
  if (ctx.has(e.mask)) {
    AxisReducer reduce(ctx, ctx.sizes(e.mask), {1});
    out.push_back(reduce.drop(reduce(ReduceOp::sum, count_type, [&](std::span<const SymInt> at) {
      Expr kept = ctx.in(e.mask).load(p, at);
      Expr one = ir::where(ir::binary(Op::equal, kept, number(kept, 1)), number(kept, 1), number(kept, 0));
      return to_compute(one, count_type);
    })));
  } else {
    out.push_back(full(ctx, count_type, {sizes[0]}, 0));
  }
  out.push_back(sum);
  return out;
}

std::vector<LoweredValue> embed_layer_norm(OpContext& ctx) {
  Embedding e;
  e.positions = 8;
  e.words = ctx.in(2);
  e.places = ctx.in(3);
  if (ctx.has(4)) e.kinds = ctx.in(4);
  e.gamma = ctx.in(5);
  e.beta = ctx.in(6);
  return embedded(ctx, e);
}

/// The same with tables and parameters of 8 bits, each with its scale and zero point.
std::vector<LoweredValue> quantized_embed_layer_norm(OpContext& ctx) {
  auto table = [&](int i, int scale, int zero) {
    for (int k : {scale, zero})
      TBX_MODEL(ctx.has(k) && ir::product(ctx.sizes(k)).is(1), "input {} is no scalar", k);
    TBX_MODEL(is_byte(ctx.dtype(i)), "input {} is of type {}", i, name_of(ctx.dtype(i)));
    const TensorBox xs[] = {ctx.in(i), ir::reshape(ctx.program, ctx.in(scale), {}),
                            ir::reshape(ctx.program, ctx.in(zero), {})};
    return map(ctx, DType::f32, xs, [](std::span<const Expr> v) {
      Expr shifted = ir::sub(to_compute(v[0], DType::f32), to_compute(v[2], DType::f32));
      return ir::mul(shifted, to_compute(v[1], DType::f32));
    });
  };
  Embedding e;
  e.words = table(2, 8, 13);
  e.places = table(3, 9, 14);
  if (ctx.has(4)) e.kinds = table(4, 10, 15);
  e.gamma = table(5, 11, 16);
  e.beta = table(6, 12, 17);
  std::vector<LoweredValue> out = embedded(ctx, e);
  out.resize(2);
  return out;
}

} // namespace

void register_embed_layer_norm(Registry& r) {
  r.add("EmbedLayerNormalization", since(1), embed_layer_norm, "com.microsoft");
  r.add("QEmbedLayerNormalization", since(1), quantized_embed_layer_norm, "com.microsoft");
  r.type_from(2, {"EmbedLayerNormalization"}, "com.microsoft");
  r.need("EmbedLayerNormalization", 0, index_into(2, 0), "com.microsoft");
  r.need("EmbedLayerNormalization", 1, index_into(4, 0), "com.microsoft");
  r.need("EmbedLayerNormalization", 8, index_into(3, 0), "com.microsoft");
}

} // namespace tbx::lowering
