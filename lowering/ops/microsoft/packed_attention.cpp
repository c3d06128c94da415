// com.microsoft attention over batches without padding: the tokens of all sequences lie one behind the other,
// and token_offset says where each belongs in the padded batch.
#include <cmath>

#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

Expr both(Expr a, Expr b) { return ir::binary(Op::logical_and, a, b); }

/// Where sequences begin in a packed batch: cumulative lengths i32 [B + 1].
class Packing {
public:
  Packing(OpContext& ctx, int offsets, int cumulative)
      : ctx_(ctx), p_(ctx.program), offsets_(ctx.in(offsets)), cumulative_(ctx.in(cumulative)) {
    for (const TensorBox* x : {&offsets_, &cumulative_})
      TBX_MODEL(x->dtype() == DType::i32, "offsets are of type {}, expected int32", name_of(x->dtype()));
    TBX_MODEL(offsets_.rank() == 2, "token_offset has rank {}, expected 2", offsets_.rank());
    TBX_MODEL(cumulative_.rank() == 1, "cumulative_sequence_length has rank {}, expected 1",
              cumulative_.rank());
    batch = offsets_.sizes()[0];
    length = offsets_.sizes()[1];
    require_equal(ctx, cumulative_.sizes()[0], batch + SymInt(1),
                  "batch size and cumulative_sequence_length");
  }

  SymInt batch, length;

  Expr begin(SymInt b) const { return to_compute(cumulative_.load(p_, {&b, 1}), DType::i64); }

  /// [tokens, H, D] -> [B, H, S, D], 0 where there is no token.
  TensorBox unpacked(const TensorBox& x) const {
    ir::Context& c = ctx_.c;
    SymInts sizes{batch, x.sizes()[1], length, x.sizes()[2]};
    return generate(ctx_, x.dtype(), sizes, [&](std::span<const SymInt> at) {
      Expr place = ir::add(begin(at[0]), c.index(at[2]));
      Expr exists = both(ir::binary(Op::less, place, begin(at[0] + SymInt(1))),
                         both(ir::binary(Op::less, place, c.index(x.sizes()[0])),
                              ir::binary(Op::greater_equal, place, number(place, 0))));
      const SymInt from[] = {c.indirect(ir::where(exists, place, number(place, 0)), x.sizes()[0], false),
                             at[1], at[3]};
      Expr e = ir::mask_loads(x.load(p_, from), exists);
      return ir::where(exists, e, number(e, 0));
    });
  }

  /// [B, S, H] -> [tokens, H].
  TensorBox packed(const TensorBox& x, SymInt tokens) const {
    SymInt all = batch * length;
    p_.add_check(all - tokens, false, "more packed tokens than the padded batch holds");
    TensorBox flat = ir::reshape(p_, x, {all, x.sizes()[2]}), places = ir::reshape(p_, offsets_, {all});
    return generate(ctx_, x.dtype(), {tokens, x.sizes()[2]}, [&](std::span<const SymInt> at) {
      Expr place = to_compute(places.load(p_, at.first(1)), DType::i64);
      const SymInt from[] = {ctx_.c.indirect(place, all, false), at[1]};
      return flat.load(p_, from);
    });
  }

  /// Hides what lies behind the end of each sequence; input `bias` (may be absent) is added.
  TensorBox mask(int bias) const {
    ir::Context& c = ctx_.c;
    TensorBox ends = generate(ctx_, DType::f32, {batch, 1, 1, length}, [&](std::span<const SymInt> at) {
      Expr place = ir::add(begin(at[0]), c.index(at[3]));
      return ir::where(ir::binary(Op::less, place, begin(at[0] + SymInt(1))), c.constant(DType::f32, 0),
                       c.constant(DType::f32, -HUGE_VAL));
    });
    if (!ctx_.has(bias)) return ends;
    const TensorBox& b = ctx_.in(bias);
    TBX_MODEL(b.rank() == 4, "attention_bias has rank {}, expected 4", b.rank());
    for (int d : {2, 3}) require_equal(ctx_, b.sizes()[d], length, "lengths of sequences and attention_bias");
    return map(ctx_, DType::f32, ends, convert(ctx_, b, DType::f32), ir::add);
  }

private:
  OpContext& ctx_;
  ir::Program& p_;
  TensorBox offsets_, cumulative_;
};

/// Attention of packed q, k, v, each [tokens, H, D].
TensorBox attend_packed(OpContext& ctx, const Packing& packing, const TensorBox& q, const TensorBox& k,
                        const TensorBox& v, int bias) {
  AttentionCore a;
  a.q = packing.unpacked(q);
  a.k = packing.unpacked(k);
  a.v = packing.unpacked(v);
  a.scale = attention_scale(ctx, known_size(q.sizes()[2], "the head size"));
  a.mask = packing.mask(bias);
  return packing.packed(join_heads(ctx, attend(ctx, a)), q.sizes()[0]);
}

/// Columns [first, first + width) of x [tokens, n] as [tokens, heads, width / heads].
TensorBox heads_of(OpContext& ctx, const TensorBox& x, int64_t first, int64_t width, int64_t heads) {
  TBX_MODEL(heads > 0 && width % heads == 0, "{} columns are not divisible into {} heads", width, heads);
  TensorBox part = ir::slice(ctx.program, x, 1, first, 1, width);
  return ir::reshape(ctx.program, part, {x.sizes()[0], heads, width / heads});
}

std::vector<LoweredValue> packed_attention(OpContext& ctx) {
  TBX_MODEL(ctx.rank(0) == 2 && ctx.rank(1) == 2 && ctx.rank(2) == 1,
            "input, weights and bias have ranks {}, {} and {}, expected 2, 2 and 1", ctx.rank(0), ctx.rank(1),
            ctx.rank(2));
  require_equal(ctx, ctx.sizes(2)[0], ctx.sizes(1)[1], "length of bias and columns of weights");
  TensorBox x = matrix_product(ctx, ctx.in(0), ctx.in(1), &ctx.in(2), 1, 1, ctx.dtype(0));
  const int64_t heads = head_count(ctx, "num_heads"), all = known_size(x.sizes()[1], "the hidden size");
  std::vector<int64_t> widths = ctx.attr_ints("qkv_hidden_sizes");
  if (widths.empty()) widths.assign(3, all / 3);
  TBX_MODEL(widths.size() == 3 && widths[0] >= 0 && widths[0] == widths[1] && widths[2] >= 0 &&
                widths[0] <= all && widths[2] <= all && widths[0] + widths[1] + widths[2] == all,
            "qkv_hidden_sizes do not fit {} columns of weights", all);
  Packing packing(ctx, 3, 4);
  return {attend_packed(ctx, packing, heads_of(ctx, x, 0, widths[0], heads),
                        heads_of(ctx, x, widths[0], widths[1], heads),
                        heads_of(ctx, x, widths[0] + widths[1], widths[2], heads), 5)};
}

std::vector<LoweredValue> packed_multi_head_attention(OpContext& ctx) {
  ir::Program& p = ctx.program;
  const int64_t heads = head_count(ctx, "num_heads");
  const TensorBox& query = ctx.in(0);
  TensorBox parts[3];
  if (query.rank() == 4) {
    TBX_MODEL(!ctx.has(1) && !ctx.has(2), "key or value beside a packed query");
    require_equal(ctx, query.sizes()[1], heads, "num_heads and heads of the packed query");
    require_equal(ctx, query.sizes()[2], 3, "number of packed tensors and 3");
    const int axis[] = {2};
    for (int i = 0; i < 3; ++i) parts[i] = ir::squeeze(p, ir::slice(p, query, 2, i, 1, 1), axis);
  } else {
    for (int i = 0; i < 3; ++i) {
      TBX_MODEL(ctx.rank(i) == 2, "input {} has rank {}, expected 2", i, ctx.rank(i));
      parts[i] = heads_of(ctx, ctx.in(i), 0, known_size(ctx.sizes(i)[1], "the hidden size"), heads);
      require_equal(ctx, ctx.sizes(i)[0], query.sizes()[0], "numbers of tokens");
    }
  }
  if (ctx.has(3)) {
    TBX_MODEL(ctx.rank(3) == 1, "bias has rank {}, expected 1", ctx.rank(3));
    SymInt first = 0;
    for (TensorBox& x : parts) {
      SymInt width = x.sizes()[1] * x.sizes()[2];
      TensorBox bias = ir::slice(p, ctx.in(3), 0, first, 1, width);
      x = map(ctx, x.dtype(), x, ir::reshape(p, bias, {1, x.sizes()[1], x.sizes()[2]}), ir::add);
      first = first + width;
    }
    require_equal(ctx, ctx.sizes(3)[0], first, "length of bias and hidden sizes");
  }
  Packing packing(ctx, 4, 5);
  return {attend_packed(ctx, packing, parts[0], parts[1], parts[2], 6)};
}

std::vector<LoweredValue> remove_padding(OpContext& ctx) {
  ir::Program& p = ctx.program;
  ir::Context& c = ctx.c;
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() == 3, "input has rank {}, expected 3", x.rank());
  TBX_MODEL(ctx.rank(1) == 1 && ctx.dtype(1) == DType::i32, "sequence_token_count is no vector of int32");
  require_equal(ctx, ctx.sizes(1)[0], x.sizes()[0], "batch size and number of token counts");
  SymInt batch = x.sizes()[0], length = x.sizes()[1], all = batch * length;
  TensorBox counts = map(ctx, DType::i32, ctx.in(1), [&](Expr e) {
    Expr most = to_compute(c.index(length), e->dtype);
    return ir::binary(Op::max, number(e, 0), ir::binary(Op::min, e, most));
  });
  auto zero = std::make_shared<const Tensor>(Tensor::of_ints(std::vector<int64_t>{0}));
  auto summed = [&](const TensorBox& v) {
    return lower_as(ctx, "CumSum", 14, {v, LoweredValue(zero)}, {}).at(0).tensor;
  };
  TensorBox ends = summed(counts);
  realize(ctx, ends, "ends of sequences");
  TensorBox padding = summed(map(ctx, DType::i32, counts,
                                 [&](Expr e) { return ir::sub(to_compute(c.index(length), e->dtype), e); }));
  realize(ctx, padding, "ends of padding");
  TensorBox cumulative = concatenate(ctx, {full(ctx, DType::i32, {1}, 0), ends}, 0);
  realize(ctx, cumulative, "cumulative lengths");
  TensorBox last = convert(ctx, ir::slice(p, cumulative, 0, batch, 1, 1), DType::i64);
  SymInt total = sizes_at_run_time(ctx, last, "token counts of RemovePadding").at(0);

  auto value = [&](const TensorBox& v, SymInt i) { return to_compute(v.load(p, {&i, 1}), DType::i64); };
  // Place r of the list, in which all real tokens come first, belongs to the sequence before whose end it
  // lies among its kind.
  AxisReducer over_sequences(ctx, {all, batch}, {1});
  TensorBox which =
      over_sequences.drop(over_sequences(ReduceOp::sum, DType::i64, [&](std::span<const SymInt> at) {
        Expr place = c.index(at[0]), real = c.index(total);
        Expr is_real = ir::binary(Op::less, place, real);
        Expr end = ir::where(is_real, value(ends, at[1]), ir::add(value(padding, at[1]), real));
        return to_compute(ir::binary(Op::less_equal, end, place), DType::i64);
      }));
  realize(ctx, which, "sequences of tokens");
  // In the padded batch as many padding tokens lie before a real one as the sequences before its own have,
  // and before a padding token all real ones up to the end of its sequence.
  TensorBox offset = generate(ctx, DType::i32, {all}, [&](std::span<const SymInt> at) {
    SymInt b = c.indirect(value(which, at[0]), batch, false);
    Expr place = c.index(at[0]), real = c.index(total);
    Expr of_real = ir::add(place, ir::sub(c.index(b * length), value(cumulative, b)));
    Expr of_padding = ir::add(ir::sub(place, real), value(cumulative, b + SymInt(1)));
    return to_compute(ir::where(ir::binary(Op::less, place, real), of_real, of_padding), DType::i32);
  });
  realize(ctx, offset, "offsets of tokens");
  TensorBox flat = ir::reshape(p, x, {all, x.sizes()[2]});
  TensorBox y = generate(ctx, x.dtype(), {total, x.sizes()[2]}, [&](std::span<const SymInt> at) {
    const SymInt from[] = {c.indirect(value(offset, at[0]), all, false), at[1]};
    return flat.load(p, from);
  });
  AxisReducer reduce(ctx, counts.sizes(), {0});
  return {y, ir::reshape(p, offset, {batch, length}), cumulative, reduce(ReduceOp::max, DType::i32, counts)};
}

std::vector<LoweredValue> restore_padding(OpContext& ctx) {
  ir::Program& p = ctx.program;
  const TensorBox &x = ctx.in(0), &offsets = ctx.in(1);
  TBX_MODEL(x.rank() == 2 && offsets.rank() == 2, "input and token_offset have ranks {} and {}, expected 2",
            x.rank(), offsets.rank());
  SymInt all = offsets.sizes()[0] * offsets.sizes()[1], tokens = x.sizes()[0];
  p.add_check(all - tokens, false, "RestorePadding: more tokens than the padded batch holds");
  TensorBox places = ir::slice(p, ir::reshape(p, convert(ctx, offsets, DType::i64), {all}), 0, 0, 1, tokens);
  TensorBox zeros = full(ctx, x.dtype(), {all, x.sizes()[1]}, 0);
  TensorBox y =
      lower_as(ctx, "ScatterND", 18, {zeros, ir::reshape(p, places, {tokens, 1}), x}, {}).at(0).tensor;
  return {ir::reshape(p, y, {offsets.sizes()[0], offsets.sizes()[1], x.sizes()[1]})};
}

} // namespace

void register_packed_attention(Registry& r) {
  r.add("PackedAttention", since(1), packed_attention, "com.microsoft");
  r.add("PackedMultiHeadAttention", since(1), packed_multi_head_attention, "com.microsoft");
  r.add("RemovePadding", since(1), remove_padding, "com.microsoft");
  r.add("RestorePadding", since(1), restore_padding, "com.microsoft");
  r.type_from(0, {"PackedAttention", "PackedMultiHeadAttention", "RemovePadding", "RestorePadding"},
              "com.microsoft");
}

} // namespace tbx::lowering
