// com.microsoft MultiHeadAttention, DecoderMaskedMultiHeadAttention, Attention and QAttention: attention with
// its input projection or the bias of it, padding masks and past keys and values.
#include <limits>
#include <numeric>

#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/onnx/integer_products.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

constexpr float kFilter = -10000; ///< what masked scores get added, if the model says nothing else

/// Keys or values with those of the past before them: appended, or written into a buffer of fixed length.
struct Cache {
  TensorBox present; ///< all that is stored
  TensorBox used;    ///< what attention looks at
};

/// `past` [B, H, P, D] (undefined: none) followed by x [B, H, S, D]. With `past_length` the cache is a buffer
/// of whose P tokens that many are in use.
Cache append(OpContext& ctx, const TensorBox& past, const TensorBox& x, std::optional<SymInt> past_length) {
  if (!past.defined()) return {x, x};
  TBX_MODEL(past.rank() == 4, "past keys or values have rank {}, expected 4", past.rank());
  TBX_MODEL(past.dtype() == x.dtype(), "past keys or values are of type {}, new ones of {}",
            name_of(past.dtype()), name_of(x.dtype()));
  for (int d : {0, 1, 3}) require_equal(ctx, past.sizes()[d], x.sizes()[d], "sizes of past and new keys");
  if (!past_length) {
    TensorBox all = join_tokens(ctx, {past, x});
    return {shown_half(ctx, all), all};
  }
  ir::Program& p = ctx.program;
  SymInt room = past.sizes()[2], first = *past_length, end = first + x.sizes()[2];
  p.add_check(room - end, false, "past_sequence_length and the new tokens exceed the buffer of the past");
  TensorBox all =
      join_tokens(ctx, {ir::slice(p, past, 2, 0, 1, first), x, ir::slice(p, past, 2, end, 1, room - end)});
  return {shown_half(ctx, all), ir::slice(p, all, 2, 0, 1, end)};
}

std::optional<SymInt> past_length(OpContext& ctx, int input) {
  if (!ctx.has(input)) return std::nullopt;
  SymInts n = ctx.known_or_throw(input, "past_sequence_length");
  TBX_MODEL(n.size() == 1, "past_sequence_length has {} elements", n.size());
  TBX_MODEL(!n[0].is_constant() ||
                (n[0].constant() >= 0 && n[0].constant() <= std::numeric_limits<int32_t>::max()),
            "past_sequence_length is {}", n[0].constant());
  return n[0];
}

/// Mask and bias of scores of inputs `mask` and `bias`, added up; also those that reach beyond the keys in
/// use.
void add_masks(OpContext& ctx, AttentionCore& a, int mask, int bias) {
  SymInt batch = a.q.sizes()[0], queries = a.q.sizes()[2], keys = a.k.sizes()[2];
  if (ctx.has(mask) && ir::product(ctx.sizes(mask)) != SymInt(0))
    a.mask =
        padding_mask(ctx, ctx.in(mask), batch, queries, keys, ctx.attr_float("mask_filter_value", kFilter));
  if (bias < 0 || !ctx.has(bias)) return;
  const TensorBox& b = ctx.in(bias);
  TBX_MODEL(b.rank() == 4, "attention_bias has rank {}, expected 4", b.rank());
  require_equal(ctx, b.sizes()[2], queries, "lengths of query and attention_bias");
  require_equal(ctx, b.sizes()[3], keys, "lengths of keys and attention_bias");
  TensorBox wide = convert(ctx, b, DType::f32);
  a.mask = a.mask ? map(ctx, DType::f32, *a.mask, wide, ir::add) : wide;
}

// --- MultiHeadAttention

constexpr int kDecoderBias = 10; ///< the bias of DecoderMaskedMultiHeadAttention

/// Query, key and value [B, H, S, D] of all packings, with their bias (input `bias`, may be absent).
class Projections {
public:
  Projections(OpContext& ctx, int bias) : ctx_(ctx), p_(ctx.program), heads_(head_count(ctx, "num_heads")) {
    const TensorBox& query = ctx.in(0);
    TBX_MODEL(is_float(query.dtype()), "query is of type {}", name_of(query.dtype()));
    if (query.rank() == 5) {
      TBX_MODEL(!ctx.has(1) && !ctx.has(2), "key or value beside a packed query");
      q = packed(query, 0, 3);
      k = packed(query, 1, 3);
      v = packed(query, 2, 3);
    } else if (!ctx.has(1) && bias == kDecoderBias) {
      TBX_MODEL(query.rank() == 3, "query has rank {}, expected 3", query.rank());
      TensorBox all = split_heads(ctx, query, 3 * heads_);
      TensorBox* const parts[] = {&q, &k, &v};
      for (int64_t i = 0; i < 3; ++i) *parts[i] = ir::slice(p_, all, 1, i * heads_, 1, heads_);
    } else {
      q = split_heads(ctx, query, heads_);
      TBX_MODEL(ctx.has(1), "key is missing");
      const TensorBox& key = ctx.in(1);
      if (key.rank() == 5) {
        TBX_MODEL(!ctx.has(2), "value beside a packed key");
        k = packed(key, 0, 2);
        v = packed(key, 1, 2);
      } else {
        TBX_MODEL(ctx.has(2), "value is missing");
        TBX_MODEL(key.rank() == ctx.rank(2), "key has rank {}, value {}", key.rank(), ctx.rank(2));
        from_past_ = key.rank() == 4; // keys of the encoder, computed before
        k = from_past_ ? key : split_heads(ctx, key, heads_);
        v = from_past_ ? ctx.in(2) : split_heads(ctx, ctx.in(2), heads_);
      }
    }
    if (ctx.has(bias)) add_bias(ctx.in(bias));
  }

  TensorBox q, k, v;

private:
  /// [B, S, H, count, D] -> part `i` as [B, H, S, D].
  TensorBox packed(const TensorBox& x, int64_t i, int64_t count) {
    require_equal(ctx_, x.sizes()[2], heads_, "num_heads and heads of the packed input");
    require_equal(ctx_, x.sizes()[3], count, "number of packed tensors and what is expected");
    TensorBox one = ir::slice(p_, x, 3, i, 1, 1);
    const int axis[] = {3}, order[] = {0, 2, 1, 3};
    return ir::permute(p_, ir::squeeze(p_, one, axis), order);
  }

  void add_bias(const TensorBox& bias) {
    TBX_MODEL(bias.rank() == 1, "bias has rank {}, expected 1", bias.rank());
    SymInt hidden = q.sizes()[3] * SymInt(heads_), value_hidden = v.sizes()[3] * SymInt(heads_);
    require_equal(ctx_, bias.sizes()[0], hidden + hidden + value_hidden, "length of bias and hidden sizes");
    auto with = [&](const TensorBox& x, SymInt first) {
      SymInt width = x.sizes()[3];
      TensorBox part = ir::slice(p_, bias, 0, first, 1, width * SymInt(heads_));
      part = ir::reshape(p_, part, {1, heads_, 1, width});
      return map(ctx_, x.dtype(), x, part, ir::add);
    };
    q = with(q, 0);
    if (from_past_) return;
    k = with(k, hidden);
    v = with(v, hidden + hidden);
  }

  OpContext& ctx_;
  ir::Program& p_;
  int64_t heads_;
  bool from_past_ = false;
};

/// Where the inputs of an operator are that differ between the two of this family.
struct Inputs {
  int bias, mask, scores, past_key, past_value, length, indirection;
};
constexpr Inputs kPlain{3, 4, 5, 6, 7, 8, 9}, kDecoder{kDecoderBias, 3, 4, 5, 6, 7, 9};

/// Without as many new keys as queries: query i sees what is past and the new keys 0 to i, but the last query
/// all of them. So does ONNX Runtime.
void hide_later_keys(OpContext& ctx, AttentionCore& a, SymInt new_keys) {
  const SymInt queries = a.q.sizes()[2], keys = a.k.sizes()[2];
  TensorBox mask = generate(ctx, DType::f32, {1, 1, queries, keys}, [&](std::span<const SymInt> at) {
    Expr last = ir::binary(Op::equal, ctx.c.index(at[2]), ctx.c.index(queries - 1));
    Expr before = ir::binary(Op::less_equal, ctx.c.index(at[3]), ctx.c.index(keys - new_keys + at[2]));
    return ir::where(ir::binary(Op::logical_or, last, before), ctx.c.constant(DType::f32, 0),
                     ctx.c.constant(DType::f32, a.unseen));
  });
  a.mask = a.mask ? map(ctx, DType::f32, *a.mask, mask, ir::add) : mask;
  a.causal = false;
}

LowerFn multi_head_attention(const Inputs& in) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    if (ctx.has(in.indirection)) throw_unsupported("cache_indirection");
    Projections x(ctx, in.bias);
    TBX_MODEL(ctx.has(in.past_key) == ctx.has(in.past_value),
              "past_key and past_value must be given together");
    auto length = past_length(ctx, in.length);
    TBX_MODEL(!length || ctx.has(in.past_key), "past_sequence_length without past_key");
    auto past = [&](int i) { return ctx.has(i) ? ctx.in(i) : TensorBox(); };
    Cache keys = append(ctx, past(in.past_key), x.k, length),
          values = append(ctx, past(in.past_value), x.v, length);
    AttentionCore a;
    a.q = x.q;
    a.k = keys.used;
    a.v = values.used;
    a.scale = attention_scale(ctx, known_size(x.q.sizes()[3], "the head size"));
    a.causal = ctx.attr_int("unidirectional", 0) != 0;
    a.unseen = std::numeric_limits<float>::lowest();
    add_masks(ctx, a, in.mask, in.scores);
    if (a.causal && !ir::provably_equal(x.k.sizes()[2], x.q.sizes()[2]))
      hide_later_keys(ctx, a, x.k.sizes()[2]);
    TensorBox scores;
    TensorBox y = attend(ctx, a, ctx.wants(3) ? &scores : nullptr);
    std::vector<LoweredValue> out = {join_heads(ctx, y), keys.present, values.present};
    if (ctx.wants(3)) out.push_back(convert(ctx, scores, x.q.dtype()));
    return out;
  };
}

// --- Attention and QAttention

/// Attention over qkv [B, S, hidden + hidden + value hidden], which holds the projections side by side.
std::vector<LoweredValue> self_attention(OpContext& ctx, const TensorBox& qkv, int mask, int past, int bias,
                                         int length) {
  if (ctx.attr_int("do_rotary", 0) != 0)
    throw_unsupported("do_rotary: the operator does not say by which angles");
  ir::Program& p = ctx.program;
  const int64_t heads = head_count(ctx, "num_heads"), all = known_size(qkv.sizes()[2], "the hidden size");
  std::vector<int64_t> widths = ctx.attr_ints("qkv_hidden_sizes");
  TBX_MODEL(widths.empty() || widths.size() == 3, "qkv_hidden_sizes has {} elements, expected 3",
            widths.size());
  if (widths.empty()) {
    TBX_MODEL(all % 3 == 0, "{} columns of weights are not divisible by 3", all);
    widths.assign(3, all / 3);
  }
  for (int64_t w : widths) TBX_MODEL(w >= 0 && w <= all, "qkv_hidden_sizes has an element {}", w);
  TBX_MODEL(widths[0] + widths[1] + widths[2] == all && widths[0] == widths[1],
            "qkv_hidden_sizes are {}, {} and {} for {} columns of weights", widths[0], widths[1], widths[2],
            all);
  TensorBox parts[3];
  int64_t first = 0;
  for (int i = 0; i < 3; first += widths[i++])
    parts[i] = split_heads(ctx, ir::slice(p, qkv, 2, first, 1, widths[i]), heads);

  const bool has_past = ctx.has(past), wants_present = ctx.wants(1);
  TBX_MODEL(!(has_past || wants_present) || widths[1] == widths[2],
            "a past state needs keys and values of the same size, not {} and {}", widths[1], widths[2]);
  auto state = [&](int64_t i) {
    if (!has_past) return TensorBox();
    TBX_MODEL(ctx.rank(past) == 5, "past has rank {}, expected 5", ctx.rank(past));
    require_equal(ctx, ctx.sizes(past)[0], 2, "first dimension of past and 2");
    const int axis[] = {0};
    return ir::squeeze(p, ir::slice(p, ctx.in(past), 0, i, 1, 1), axis);
  };
  std::optional<SymInt> used;
  if (ctx.attr_int("past_present_share_buffer", 0) != 0 && length >= 0) used = past_length(ctx, length);
  Cache keys = append(ctx, state(0), parts[1], used), values = append(ctx, state(1), parts[2], used);
  AttentionCore a;
  a.q = parts[0];
  a.k = keys.used;
  a.v = values.used;
  a.scale = attention_scale(ctx, widths[0] / heads);
  a.causal = ctx.attr_int("unidirectional", 0) != 0;
  add_masks(ctx, a, mask, bias);
  std::vector<LoweredValue> out = {join_heads(ctx, attend(ctx, a))};
  if (wants_present) {
    const int axis[] = {0};
    out.push_back(
        concatenate(ctx, {ir::unsqueeze(p, keys.present, axis), ir::unsqueeze(p, values.present, axis)}, 0));
  }
  return out;
}

void check_projection(OpContext& ctx) {
  TBX_MODEL(ctx.rank(0) == 3, "input has rank {}, expected 3", ctx.rank(0));
  TBX_MODEL(ctx.rank(1) == 2, "weights have rank {}, expected 2", ctx.rank(1));
  require_equal(ctx, ctx.sizes(0)[2], ctx.sizes(1)[0], "width of input and rows of weights");
  if (!ctx.has(2)) return;
  TBX_MODEL(ctx.rank(2) == 1, "bias has rank {}, expected 1", ctx.rank(2));
  require_equal(ctx, ctx.sizes(2)[0], ctx.sizes(1)[1], "length of bias and columns of weights");
}

std::vector<LoweredValue> attention(OpContext& ctx) {
  check_projection(ctx);
  const TensorBox &x = ctx.in(0), &w = ctx.in(1);
  TBX_MODEL(is_float(x.dtype()), "input is of type {}", name_of(x.dtype()));
  TensorBox qkv = matrix_product(ctx, x, w, ctx.has(2) ? &ctx.in(2) : nullptr, 1, 1, x.dtype());
  return self_attention(ctx, qkv, 3, 4, 5, 6);
}

std::vector<LoweredValue> quantized_attention(OpContext& ctx) {
  check_projection(ctx);
  for (int i : {0, 1}) TBX_MODEL(is_byte(ctx.dtype(i)), "input {} is of type {}", i, name_of(ctx.dtype(i)));
  TBX_MODEL(ir::product(ctx.sizes(3)).is(1), "input_scale is no scalar");
  TensorBox sum = integer_matmul(ctx, 0, 6, 1, 7);
  const TensorBox xs[] = {sum, ir::reshape(ctx.program, ctx.in(3), {}), ctx.in(4), ctx.in(2)};
  const DType type = ctx.dtype(2);
  TensorBox qkv = map(ctx, type, xs, [](std::span<const Expr> v) {
    Expr scale = ir::mul(v[1], v[2]);
    return ir::add(ir::mul(to_compute(v[0], scale->dtype), scale), v[3]);
  });
  realize(ctx, qkv, "projections of attention");
  return self_attention(ctx, qkv, 5, 8, -1, -1);
}

} // namespace

void register_microsoft_attention(Registry& r) {
  r.add("MultiHeadAttention", since(1), multi_head_attention(kPlain), "com.microsoft");
  r.add("DecoderMaskedMultiHeadAttention", since(1), multi_head_attention(kDecoder), "com.microsoft");
  r.add("Attention", since(1), attention, "com.microsoft");
  r.add("QAttention", since(1), quantized_attention, "com.microsoft");
  r.type_from(0, {"Attention", "MultiHeadAttention", "DecoderMaskedMultiHeadAttention"}, "com.microsoft");
  r.type_from(3, {"QAttention"}, "com.microsoft");
}

} // namespace tbx::lowering
