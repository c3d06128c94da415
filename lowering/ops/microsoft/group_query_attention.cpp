// com.microsoft GroupQueryAttention: rotation, a cache of keys and values, and attention whose reach the run
// decides for each batch entry.
#include <algorithm>
#include <cmath>

#include "graph/kept_past.h"
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/microsoft/packed_integers.h"
#include "lowering/ops/microsoft/window_cache.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

struct Heads {
  TensorBox q, k, v; ///< [B, H, S, D]
};

/// Query, key and value by heads, from three inputs or a packed one.
Heads split_inputs(OpContext& ctx, int64_t heads, int64_t kv_heads) {
  TBX_MODEL(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "num_heads is {}, kv_num_heads is {}", heads,
            kv_heads);
  const TensorBox& query = ctx.in(0);
  TBX_MODEL(query.rank() == 3, "query has rank {}, expected 3", query.rank());
  TBX_MODEL(is_float(query.dtype()), "query is of type {}", name_of(query.dtype()));
  TBX_MODEL(ctx.has(1) == ctx.has(2), "key and value must be given together");
  if (ctx.has(1)) {
    Heads h{split_heads(ctx, query, heads), split_heads(ctx, ctx.in(1), kv_heads),
            split_heads(ctx, ctx.in(2), kv_heads)};
    require_equal(ctx, h.q.sizes()[2], h.k.sizes()[2], "lengths of query and key");
    return h;
  }
  TensorBox all = split_heads(ctx, query, heads + 2 * kv_heads);
  auto part = [&](int64_t first, int64_t n) { return ir::slice(ctx.program, all, 1, first, 1, n); };
  return {part(0, heads), part(heads, kv_heads), part(heads + kv_heads, kv_heads)};
}

/// Root mean square normalisation of each head.
TensorBox normalized_heads(OpContext& ctx, const TensorBox& x, int weight) {
  const auto epsilon = ctx.attr_float("qk_norm_epsilon", 1e-6f);
  return lower_as(ctx, "SimplifiedLayerNormalization", 1, {x, ctx.in(weight)},
                  {{"axis", int64_t{-1}}, {"epsilon", epsilon}})
      .at(0)
      .tensor;
}

/// How keys or values lie in their cache: as they are, or as integers of 8 or 4 bits (two in a byte) or
/// narrow floats with a scale for all or one per head and channel.
class Storage {
public:
  Storage(OpContext& ctx, const char* kind, int past, int scale) : ctx_(ctx) {
    std::string how = ctx.attr_string(kind, "NONE");
    if (how == "NONE") return;
    TBX_MODEL(how == "PER_TENSOR" || how == "PER_CHANNEL", "{} is '{}'", kind, how);
    TBX_MODEL(ctx.has(scale), "{} is {}, but there is no scale", kind, how);
    const int64_t bits = ctx.attr_int("kv_cache_bit_width", 8);
    TBX_MODEL(bits == 4 || bits == 8, "kv_cache_bit_width is {}, expected 4 or 8", bits);
    packed_ = bits == 4;
    type_ = ctx.has(past) ? ctx.dtype(past) : packed_ ? DType::u8 : DType::i8;
    const bool fits = packed_ ? type_ == DType::u8 : type_ == DType::i8 || is_low_precision_float(type_);
    TBX_MODEL(fits, "a cache of {} bits is of type {}", bits, name_of(type_));
    scale_ = convert(ctx, ctx.in(scale), DType::f32);
    if (how == "PER_TENSOR") {
      require_equal(ctx, ir::product(scale_.sizes()), 1, "number of scales and 1");
      scale_ = ir::reshape(ctx.program, scale_, {1, 1, 1, 1});
    } else {
      TBX_MODEL(scale_.rank() == 4, "scales of channels have rank {}, expected 4", scale_.rank());
    }
  }

  TensorBox stored(const TensorBox& x) const {
    if (!scale_.defined()) return x;
    ir::Context& c = ctx_.c;
    if (!packed_) {
      return map(ctx_, type_, x, scale_, [&](Expr e, Expr s) {
        e = ir::div(to_compute(e, DType::f32), s);
        return is_float(type_) ? e : quantized(e, nullptr, type_);
      });
    }
    TensorBox q = map(ctx_, DType::u8, x, scale_, [&](Expr e, Expr s) {
      e = ir::unary(Op::round_even, ir::div(to_compute(e, DType::f32), s));
      e = ir::binary(Op::max, number(e, 0), ir::binary(Op::min, number(e, 15), ir::add(e, number(e, 8))));
      return to_compute(e, DType::u8);
    });
    SymInts sizes = x.sizes();
    sizes[3] = ir::ceildiv(sizes[3], 2);
    return generate(ctx_, DType::u8, sizes, [&](std::span<const SymInt> at) {
      SymInts from(at.begin(), at.end());
      from[3] = at[3] * SymInt(2);
      Expr low = c.cast(q.load(ctx_.program, from), DType::i32);
      from[3] = from[3] + SymInt(1);
      Expr high = c.cast(q.load(ctx_.program, from), DType::i32);
      high = ir::mul(high, c.constant_int(DType::i32, 16));
      return to_compute(ir::add(low, high), DType::u8);
    });
  }

  /// As they take part in attention.
  TensorBox loaded(const TensorBox& x, SymInt width) const {
    if (!scale_.defined()) return x;
    if (!packed_) return scaled(convert(ctx_, x, DType::f32));
    SymInts sizes = x.sizes();
    sizes[3] = width;
    return scaled(generate(ctx_, DType::f32, sizes, [&](std::span<const SymInt> at) {
      return to_compute(packed_element(ctx_.program, x, {at.begin(), at.end()}, 4, true), DType::f32);
    }));
  }

private:
  TensorBox scaled(const TensorBox& x) const { return map(ctx_, DType::f32, x, scale_, ir::mul); }

  OpContext& ctx_;
  TensorBox scale_;
  DType type_ = DType::undefined;
  bool packed_ = false;
};

class Lowering {
public:
  explicit Lowering(OpContext& ctx) : ctx_(ctx), p_(ctx.program), c_(ctx.c) {}

  std::vector<LoweredValue> run() {
    const int64_t heads = head_count(ctx_, "num_heads"), kv_heads = head_count(ctx_, "kv_num_heads");
    Heads h = split_inputs(ctx_, heads, kv_heads);
    batch_ = h.q.sizes()[0];
    queries_ = h.q.sizes()[2];
    const int64_t width = known_size(h.q.sizes()[3], "the head size");
    kept_ = ctx_.attr_int(kKeptPast, 0) != 0;
    total_ = kept_ ? grown_length() : total_length();
    make_starts();
    if (ctx_.has(14) || ctx_.has(15)) {
      TBX_MODEL(ctx_.has(14) && ctx_.has(15), "q_norm_weight and k_norm_weight must be given together");
      h.q = normalized_heads(ctx_, h.q, 14);
      h.k = normalized_heads(ctx_, h.k, 15);
    }
    if (ctx_.attr_int("do_rotary", 0) != 0) {
      TBX_MODEL(ctx_.has(7) && ctx_.has(8), "do_rotary is set without cos_cache and sin_cache");
      if (ctx_.has(9)) check_positions();
      h.q = rotate(h.q);
      h.k = rotate(h.k);
    }
    TBX_MODEL(ctx_.has(3) == ctx_.has(4), "past_key and past_value must be given together");
    const Storage keys(ctx_, "k_quant_type", 3, 12), values(ctx_, "v_quant_type", 4, 13);
    TBX_MODEL(ctx_.attr_int("kv_cache_bit_width", 8) != 4 || width % 2 == 0, "4-bit caches of heads of {}",
              width);
    AttentionCore a;
    a.q = h.q;
    a.scale = attention_scale(ctx_, width);
    a.softcap = ctx_.attr_float("softcap", 0);
    a.causal = ctx_.attr_int("causal", 1) != 0;
    const int64_t window = ctx_.attr_int("local_window_size", -1);
    TBX_MODEL(window == -1 || window > 0, "local_window_size is {}", window);
    TBX_MODEL(a.causal || window == -1, "local_window_size is {} without causal", window);
    a.window = std::max<int64_t>(window, 0);
    const bool window_cache = ctx_.attr_int("sliding_window_cache", 0) != 0;
    if (kept_ && window_cache)
      throw_unsupported("sliding_window_cache with a cache that the session keeps (option state)");
    if (window_cache)
      slide(a, h, keys, values, width);
    else
      keep(a, h, keys, values, width);
    if (slides())
      a.starts = window_->places();
    else if (a.causal)
      a.starts = starts_;
    else
      a.mask = a.mask ? map(ctx_, DType::f32, convert(ctx_, *a.mask, DType::f32), beyond_end(), ir::add)
                      : beyond_end();
    if (ctx_.has(11)) {
      TBX_MODEL(ctx_.rank(11) == 1, "head_sink has rank {}, expected 1", ctx_.rank(11));
      require_equal(ctx_, ctx_.sizes(11)[0], heads, "number of heads and length of head_sink");
      a.sinks = ctx_.in(11);
    } else if (ctx_.attr_int("smooth_softmax", -1) == 1) {
      a.sinks = full(ctx_, DType::f32, {heads}, 0);
    }
    const int64_t which = ctx_.attr_int("qk_output", 0);
    TBX_MODEL(which >= 0 && which <= 2, "qk_output is {}, expected 0 to 2", which);
    TensorBox scores;
    const bool wanted = which != 0 && ctx_.wants(3);
    if (wanted && slides()) throw_unsupported("qk_output with sliding_window_cache");
    TensorBox y =
        attend(ctx_, a, wanted && which == 1 ? &scores : nullptr, wanted && which == 2 ? &scores : nullptr);
    std::vector<LoweredValue> out = {join_heads(ctx_, y), present_k_, present_v_};
    if (wanted) out.push_back(convert(ctx_, scores, h.q.dtype()));
    return out;
  }

private:
  bool slides() const { return window_.has_value(); }

  /// Caches with room for the whole sequence.
  void keep(AttentionCore& a, const Heads& h, const Storage& keys, const Storage& values, int64_t width) {
    const TensorBox k = keys.stored(h.k), v = values.stored(h.v);
    present_k_ = kept_ ? grown(k, 3) : present(k, 3);
    present_v_ = kept_ ? grown(v, 4) : present(v, 4);
    a.k = keys.loaded(known_keys(present_k_), width);
    a.v = values.loaded(known_keys(present_v_), width);
    if (ctx_.has(10)) a.mask = bias();
  }

  /// Caches of the last tokens.
  void slide(AttentionCore& a, const Heads& h, const Storage& keys, const Storage& values, int64_t width) {
    TBX_MODEL(ctx_.has(3), "sliding_window_cache is set without past_key and past_value");
    const TensorBox k = keys.stored(h.k), v = values.stored(h.v);
    check_cache(k, 3);
    check_cache(v, 4);
    require_equal(ctx_, ctx_.sizes(3)[2], ctx_.sizes(4)[2], "lengths of past_key and past_value");
    TensorBox totals = map(ctx_, DType::i32, ir::reshape(p_, ctx_.in(5), {batch_}), [&](Expr last) {
      Expr end = ir::add(to_compute(last, DType::i64), c_.constant_int(DType::i64, 1));
      return to_compute(end, DType::i32);
    });
    window_.emplace(ctx_, ctx_.in(3), a.window, starts_, totals, queries_);
    present_k_ = window_->present(ctx_.in(3), k);
    present_v_ = window_->present(ctx_.in(4), v);
    a.k = keys.loaded(window_->seen(ctx_.in(3), k), width);
    a.v = values.loaded(window_->seen(ctx_.in(4), v), width);
    if (ctx_.has(10)) a.mask = window_->bias(bias());
  }

  void check_cache(const TensorBox& x, int past) {
    const TensorBox& old = ctx_.in(past);
    TBX_MODEL(old.rank() == 4, "a cache has rank {}, expected 4", old.rank());
    TBX_MODEL(old.dtype() == x.dtype(), "a cache is of type {}, new keys of {}", name_of(old.dtype()),
              name_of(x.dtype()));
    for (int d : {0, 1, 3}) require_equal(ctx_, old.sizes()[d], x.sizes()[d], "sizes of cache and key");
  }

  /// The longest sequence with what is new in it.
  SymInt total_length() {
    SymInt total;
    if (auto known = ctx_.known(6)) {
      TBX_MODEL(known->size() == 1, "total_sequence_length has {} elements", known->size());
      total = known->at(0);
    } else {
      TensorBox value = ir::reshape(p_, convert(ctx_, ctx_.in(6), DType::i64), {1});
      total = sizes_at_run_time(ctx_, value, "total_sequence_length of GroupQueryAttention").at(0);
    }
    p_.add_check(total - queries_, false,
                 "GroupQueryAttention: total_sequence_length is less than the length of the query");
    return total;
  }

  /// That of a cache that the session keeps: it has as many tokens as were given, and grows by those of the
  /// query.
  SymInt grown_length() {
    TBX_MODEL(ctx_.has(3) && ctx_.has(4), "past_key and past_value must be given together");
    TBX_MODEL(ctx_.rank(3) == 4 && ctx_.rank(4) == 4, "a cache has rank {} or {}, expected 4", ctx_.rank(3),
              ctx_.rank(4));
    require_equal(ctx_, ctx_.sizes(3)[2], ctx_.sizes(4)[2], "lengths of past_key and past_value");
    const SymInt total = ctx_.sizes(3)[2] + queries_;
    if (auto known = ctx_.known(6); known && known->size() == 1)
      require_equal(ctx_, known->at(0), total,
                    "total_sequence_length and the length of the state with the query");
    return total;
  }

  /// Where the new tokens of each batch entry begin: 0 in a first prompt, which may be padded at the right.
  void make_starts() {
    TBX_MODEL(ctx_.dtype(5) == DType::i32, "seqlens_k is of type {}, expected int32", name_of(ctx_.dtype(5)));
    require_equal(ctx_, ir::product(ctx_.sizes(5)), batch_, "batch size and number of seqlens_k");
    TensorBox lengths = ir::reshape(p_, ctx_.in(5), {batch_});
    starts_ = map(ctx_, DType::i32, lengths, [&](Expr last) {
      Expr e =
          ir::sub(ir::add(to_compute(last, DType::i64), c_.constant_int(DType::i64, 1)), c_.index(queries_));
      Expr zero = c_.constant_int(DType::i64, 0);
      Expr prompt = ir::binary(Op::equal, c_.index(queries_), c_.index(total_));
      return to_compute(ir::where(prompt, zero, ir::binary(Op::max, e, zero)), DType::i32);
    });
    realize(ctx_, starts_, "where the new tokens begin");
  }

  void check_positions() {
    TBX_MODEL(ctx_.dtype(9) == DType::i64, "position_ids is of type {}, expected int64",
              name_of(ctx_.dtype(9)));
    TBX_MODEL(ctx_.rank(9) == 2, "position_ids has rank {}, expected 2", ctx_.rank(9));
    require_equal(ctx_, ctx_.sizes(9)[0], batch_, "batch sizes of query and position_ids");
    p_.add_check(ctx_.sizes(9)[1] - queries_, false,
                 "GroupQueryAttention: position_ids is shorter than the query");
  }

  Expr start(SymInt b) { return to_compute(starts_.load(p_, {&b, 1}), DType::i64); }

  TensorBox rotate(const TensorBox& x) {
    auto position = [&](SymInt b, SymInt s) {
      if (!ctx_.has(9)) return ir::add(start(b), c_.index(s));
      const SymInt at[] = {b, s};
      return ctx_.in(9).load(p_, at);
    };
    return rotated(ctx_, x, ctx_.in(7), ctx_.in(8), position, ctx_.attr_int("rotary_interleaved", 0) != 0);
  }

  /// The cache in input `past` (may be absent) with `x` written behind what is in use of it; the rest is 0.
  TensorBox present(const TensorBox& x, int past) {
    const bool has = ctx_.has(past);
    TensorBox old = has ? ctx_.in(past) : TensorBox();
    SymInts sizes = x.sizes();
    SymInt room = 0;
    if (has) {
      check_cache(x, past);
      room = old.sizes()[2];
    }
    sizes[2] = ir::max(room, total_);
    TensorBox y = generate(ctx_, x.dtype(), sizes, [&](std::span<const SymInt> at) {
      Expr key = c_.index(at[2]), first = start(at[0]), zero = c_.constant_int(DType::i64, 0);
      Expr behind = ir::sub(key, first);
      auto both = [](Expr a, Expr b) { return ir::binary(Op::logical_and, a, b); };
      Expr is_new =
          both(ir::binary(Op::greater_equal, behind, zero), ir::binary(Op::less, behind, c_.index(queries_)));
      SymInts from(at.begin(), at.end());
      from[2] = c_.indirect(ir::where(is_new, behind, zero), queries_, false);
      Expr e = ir::mask_loads(x.load(p_, from), is_new);
      Expr otherwise = number(e, 0);
      if (has) {
        Expr is_old = both(ir::binary(Op::less, behind, zero), ir::binary(Op::less, key, c_.index(room)));
        from[2] = at[2];
        otherwise = ir::where(is_old, ir::mask_loads(old.load(p_, from), is_old), otherwise);
      }
      return ir::where(is_new, e, otherwise);
    });
    realize(ctx_, y, "cache of keys or values");
    return y;
  }

  /// The cache in input `past`, as long as it is, with `x` stored behind what is in use of it: a copy, zeros
  /// and a store, of which the copy and the memory go where the session keeps the cache (fusion/state.h).
  TensorBox grown(const TensorBox& x, int past) {
    check_cache(x, past);
    const TensorBox& old = ctx_.in(past);
    SymInts sizes = x.sizes();
    sizes[2] = total_;
    const ir::BufferId whole = p_.new_buffer("", x.dtype(), sizes);
    const TensorBox zeros = full(ctx_, x.dtype(), x.sizes(), 0);
    SymInt from = 0;
    for (const TensorBox* part : {&old, &zeros}) {
      const ir::BufferId id = p_.new_buffer("", x.dtype(), part->sizes());
      p_.at(id).slice_of = whole;
      p_.at(id).slice_start = {0, 0, from, 0};
      from += part->sizes()[2];
      ir::Loops loops;
      loops.ranges = part->sizes();
      loops.dtype = x.dtype();
      loops.body = part->load(p_, loop_vars(c_, 4));
      p_.operations.push_back({ir::Compute{std::move(loops), id}, {}, "part of a cache"});
    }
    SymInts at = loop_vars(c_, 4), place = at;
    place[2] = c_.indirect(ir::add(start(at[0]), c_.index(at[2])), total_, false);
    const ir::BufferId target = p_.new_buffer("", x.dtype(), sizes);
    p_.at(target).overwrites = whole;
    p_.operations.push_back(
        {ir::Scatter{x.sizes(), place, x.load(p_, at), nullptr, ir::StoreMode::set, target},
         {},
         "new keys or values"});
    return ir::make_buffer_box(p_, target);
  }

  TensorBox known_keys(const TensorBox& cache) { return ir::slice(p_, cache, 2, 0, 1, total_); }

  TensorBox bias() {
    const TensorBox& x = ctx_.in(10);
    TBX_MODEL(x.rank() == 4, "attention_bias has rank {}, expected 4", x.rank());
    require_equal(ctx_, x.sizes()[2], queries_, "lengths of query and attention_bias");
    p_.add_check(x.sizes()[3] - total_, false,
                 "GroupQueryAttention: attention_bias is shorter than total_sequence_length");
    return ir::slice(p_, x, 3, 0, 1, total_);
  }

  /// Without causal: the keys of a batch entry end at its length.
  TensorBox beyond_end() {
    TensorBox lengths = ir::reshape(p_, ctx_.in(5), {batch_});
    return generate(ctx_, DType::f32, {batch_, 1, 1, total_}, [&](std::span<const SymInt> at) {
      Expr last = to_compute(lengths.load(p_, at.first(1)), DType::i64);
      return ir::where(ir::binary(Op::less_equal, c_.index(at[3]), last), c_.constant(DType::f32, 0),
                       c_.constant(DType::f32, -HUGE_VAL));
    });
  }

  OpContext& ctx_;
  ir::Program& p_;
  ir::Context& c_;
  bool kept_ = false; ///< the session keeps the caches
  SymInt batch_, queries_, total_;
  TensorBox starts_, present_k_, present_v_;
  std::optional<WindowCache> window_; ///< with sliding_window_cache
};

std::vector<LoweredValue> group_query_attention(OpContext& ctx) { return Lowering(ctx).run(); }

} // namespace

void register_group_query_attention(Registry& r) {
  r.add("GroupQueryAttention", since(1), group_query_attention, "com.microsoft");
  r.type_from(0, {"GroupQueryAttention"}, "com.microsoft");
  r.past_at(3, {"GroupQueryAttention"}, "com.microsoft");
  r.need("GroupQueryAttention", 5, between(0, 1), "com.microsoft");
  r.need("GroupQueryAttention", 6, at_least_queries(), "com.microsoft");
  r.need("GroupQueryAttention", 9, position_in(9, 7), "com.microsoft");
}

} // namespace tbx::lowering
