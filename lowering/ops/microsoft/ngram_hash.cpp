// com.microsoft NGramHashMapping and VarlenNGramHashMapping: hashes of each token with those before it, for
// tables of n-grams. The second has the tokens of all sequences behind each other.
#include "ir/expr.h"
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;
using At = std::span<const SymInt>;

struct Form {
  DType type; ///< of ids
  int64_t longest, heads, pad;
  bool resets; ///< at the end of a sequence
  int64_t history() const { return longest - 1; }
};

void require(OpContext& ctx, int i, const char* name, DType type, int rank) {
  TBX_MODEL(ctx.has(i), "{} is missing", name);
  TBX_MODEL(ctx.dtype(i) == type && ctx.rank(i) == rank, "{} is {} of rank {}, expected {} of rank {}", name,
            name_of(ctx.dtype(i)), ctx.rank(i), name_of(type), rank);
}

/// `eos` and `offsets` are the numbers of those inputs.
Form form_of(OpContext& ctx, int eos, int offsets) {
  Form f{ctx.dtype(0), ctx.required_int("max_ngram_size"), ctx.required_int("n_head_per_ngram"),
         ctx.required_int("pad_id"), ctx.attr_int("reset_on_eos", 0) != 0 && ctx.has(eos)};
  TBX_MODEL(f.type == DType::i32 || f.type == DType::i64, "input_ids are of type {}, expected int32 or int64",
            name_of(f.type));
  TBX_MODEL(f.longest >= 2, "max_ngram_size is {}, expected at least 2", f.longest);
  if (f.longest > 64) throw_unsupported("n-grams of {} tokens: at most 64", f.longest);
  TBX_MODEL(f.heads >= 1 && f.heads <= (1 << 20), "n_head_per_ngram is {}", f.heads);
  TBX_MODEL(f.type == DType::i64 || (f.pad >= INT32_MIN && f.pad <= INT32_MAX), "pad_id is {}", f.pad);
  require(ctx, 1, "multipliers", f.type, 1);
  require(ctx, 2, "vocab_sizes", f.type, 1);
  ctx.program.add_check(ctx.sizes(1)[0] - SymInt(f.longest), false,
                        ctx.node.op_type + ": there are less than max_ngram_size multipliers");
  const SymInt outputs = f.history() * f.heads;
  require_equal(ctx, ctx.sizes(2)[0], outputs, "vocab_sizes and (max_ngram_size - 1) * n_head_per_ngram");
  if (auto sizes = ctx.constant(2))
    for (int64_t size : to_ints(*sizes))
      TBX_MODEL(size > 0, "vocab_sizes has {}, expected positive numbers", size);
  if (ctx.has(offsets)) {
    require(ctx, offsets, "head_offsets", f.type, 1);
    require_equal(ctx, ctx.sizes(offsets)[0], outputs,
                  "head_offsets and (max_ngram_size - 1) * n_head_per_ngram");
  }
  if (ctx.has(eos)) {
    TBX_MODEL(ctx.dtype(eos) == f.type, "eos_token_id is of type {}, input_ids of {}",
              name_of(ctx.dtype(eos)), name_of(f.type));
    require_equal(ctx, ir::product(ctx.sizes(eos)), 1, "the elements of eos_token_id and 1");
  }
  return f;
}

/// The end of a sequence where it is given, else the padding.
Expr filler(OpContext& ctx, const Form& f, int eos) {
  if (!ctx.has(eos)) return ctx.c.constant_int(f.type, f.pad);
  return ctx.in(eos).load(ctx.program, SymInts(static_cast<size_t>(ctx.rank(eos)), 0));
}

Expr either(Expr a, Expr b) { return a ? b ? ir::binary(Op::logical_or, a, b) : a : b; }

/// Hashes of the tokens of shape `sizes`: `token(at, k)` is the one k places before, `parts(at, k)` whether
/// another sequence begins behind it (may be null).
TensorBox hashes(OpContext& ctx, const Form& f, int eos, int offsets, const SymInts& sizes,
                 const std::function<Expr(At, int64_t)>& token,
                 const std::function<Expr(At, int64_t)>& parts) {
  ir::Program& p = ctx.program;
  const TensorBox &multipliers = ctx.in(1), &vocabulary = ctx.in(2);
  auto times = [&](Expr e, int64_t k) {
    const SymInt at[] = {k};
    return ir::mul(e, multipliers.load(p, at));
  };
  TensorBox mix = generate(ctx, f.type, sizes, [&](At at) { return times(token(at, 0), 0); }), crossed;
  std::vector<TensorBox> orders;
  for (int64_t k = 1; k < f.longest; ++k) {
    const TensorBox before = mix, crossed_before = crossed;
    auto is_crossed = [&](At at) {
      Expr e = crossed_before.defined() ? crossed_before.load(p, at) : nullptr;
      if (f.resets) e = either(e, ir::binary(Op::equal, token(at, k), filler(ctx, f, eos)));
      return either(e, parts(at, k));
    };
    const SymInts any = loop_vars(ctx.c, static_cast<int>(sizes.size()));
    if (is_crossed(any)) {
      crossed = generate(ctx, DType::boolean, sizes, is_crossed);
      realize(ctx, crossed, "read by all longer n-grams");
    }
    mix = generate(ctx, f.type, sizes, [&](At at) {
      Expr e = token(at, k);
      if (crossed.defined()) e = ir::where(crossed.load(p, at), filler(ctx, f, eos), e);
      return ir::binary(Op::bitwise_xor, before.load(p, at), times(e, k));
    });
    realize(ctx, mix, "read by all longer n-grams");
    SymInts wide = sizes;
    wide.push_back(f.heads);
    orders.push_back(generate(ctx, f.type, wide, [&](At at) {
      const SymInt head[] = {SymInt((k - 1) * f.heads) + at.back()};
      Expr x = mix.load(p, at.first(at.size() - 1)), size = vocabulary.load(p, head), none = number(x, 0);
      Expr rest = ir::sub(x, ir::mul(ir::div(x, size), size));
      rest = ir::where(ir::binary(Op::less, rest, none), ir::add(rest, size), rest);
      rest = ir::where(ir::binary(Op::greater, size, none), rest, none);
      return ctx.has(offsets) ? ir::add(rest, ctx.in(offsets).load(p, head)) : rest;
    }));
  }
  return orders.size() == 1 ? orders[0] : concatenate(ctx, orders, static_cast<int>(sizes.size()));
}

Values ngram_hash(OpContext& ctx) {
  constexpr int kPast = 3, kOffsets = 4, kEos = 5, kSegments = 6;
  ir::Program& p = ctx.program;
  const Form f = form_of(ctx, kEos, kOffsets);
  require(ctx, 0, "input_ids", f.type, 2);
  const SymInts sizes = ctx.sizes(0), history{sizes[0], f.history()};
  TensorBox past;
  if (ctx.has(kPast)) {
    require(ctx, kPast, "past_ids", f.type, 2);
    past = ctx.in(kPast);
    for (int d : {0, 1})
      require_equal(ctx, past.sizes()[d], history[d],
                    fmt::format("dimension {} of past_ids and the history", d));
  } else {
    past = generate(ctx, f.type, history, [&](At) { return filler(ctx, f, kEos); });
  }
  const TensorBox ids = concatenate(ctx, {past, ctx.in(0)}, 1);
  realize(ctx, ids, "read by every place of an n-gram");
  auto earlier = [&](At at, int64_t k) { return SymInts{at[0], at[1] + SymInt(f.history() - k)}; };
  TensorBox breaks; // where a segment begins
  if (ctx.has(kSegments)) {
    require(ctx, kSegments, "segment_ids", DType::i32, 2);
    const TensorBox& segments = ctx.in(kSegments);
    for (int d : {0, 1})
      require_equal(ctx, segments.sizes()[d], sizes[d],
                    fmt::format("dimension {} of segment_ids and input_ids", d));
    TensorBox begins = generate(ctx, DType::boolean, sizes, [&](At at) {
      const SymInt before[] = {at[0], ir::max(at[1] - SymInt(1), 0)};
      return ir::binary(Op::not_equal, segments.load(p, at), segments.load(p, before));
    });
    breaks = concatenate(ctx, {full(ctx, DType::boolean, history, 0), begins}, 1);
    realize(ctx, breaks, "read by every place of an n-gram");
  }
  TensorBox y = hashes(
      ctx, f, kEos, kOffsets, sizes, [&](At at, int64_t k) { return ids.load(p, earlier(at, k)); },
      [&](At at, int64_t k) { return breaks.defined() ? breaks.load(p, earlier(at, k - 1)) : nullptr; });
  return {y, ir::slice(p, ids, 1, sizes[1], 1, f.history())};
}

/// The inputs of VarlenNGramHashMapping: tokens of several requests, one behind the other.
enum Packed { kStarts = 3, kPast, kOffsets, kEos, kSegments, kPastSegments, kCaptures };

/// Where the tokens of requests lie, which each may have a history of earlier ones.
class Requests {
public:
  Requests(OpContext& ctx, const Form& f) : ctx_(ctx), history_(f.history()), starts_(ctx.in(kStarts)) {
    tokens = ctx.in(0).sizes()[0];
    batch = starts_.sizes()[0] - SymInt(1);
    ctx.program.add_check(batch, false, "VarlenNGramHashMapping: cumulative_sequence_length is empty");
    check(kPast, "past_ids", f.type, {batch, history_});
    check(kSegments, "segment_ids", DType::i32, {tokens});
    check(kPastSegments, "past_segment_ids", DType::i32, {batch, history_});
    check(kCaptures, "capture_count", DType::i32, {batch});
    find_requests();
  }

  SymInt tokens, batch;

  Expr length(SymInt request) const { return ir::sub(start(request + SymInt(1)), start(request)); }
  SymInt of(SymInt token) const {
    return ctx_.c.indirect(request_.load(ctx_.program, {&token, 1}), batch, false);
  }
  /// The place in its request that lies `k` tokens before the token at[0].
  Expr back(At at, int64_t k) const { return ir::sub(place_.load(ctx_.program, at.first(1)), whole(k)); }

  /// What lies at the place `at` of a request: in `now` of this call, or in its history, the input `before`,
  /// where there is one.
  Expr element(const TensorBox& now, int before, SymInt request, Expr at, Expr otherwise) const {
    ir::Context& c = ctx_.c;
    Expr last = c.index(tokens - SymInt(1)), inside = ir::binary(Op::greater_equal, at, whole(0));
    const SymInt here[] = {c.indirect(clamped(ir::add(start(request), at), last), tokens, false)};
    Expr old = otherwise;
    if (ctx_.has(before)) {
      Expr slot = clamped(ir::add(at, whole(history_)), whole(history_ - 1));
      const SymInt there[] = {request, c.indirect(slot, history_, false)};
      old = ctx_.in(before).load(ctx_.program, there);
    }
    return ir::where(inside, now.load(ctx_.program, here), old);
  }

private:
  Expr whole(int64_t v) const { return ctx_.c.constant_int(DType::i64, v); }
  Expr start(SymInt i) const { return ctx_.c.cast(starts_.load(ctx_.program, {&i, 1}), DType::i64); }
  Expr clamped(Expr e, Expr most) const {
    return ir::binary(Op::max, whole(0), ir::binary(Op::min, e, most));
  }

  void check(int i, const char* name, DType type, SymInts sizes) {
    if (!ctx_.has(i)) return;
    require(ctx_, i, name, type, static_cast<int>(sizes.size()));
    for (size_t d = 0; d < sizes.size(); ++d)
      require_equal(ctx_, ctx_.sizes(i)[d], sizes[d],
                    fmt::format("dimension {} of {} and what it belongs to", d, name));
  }

  /// The request of each token, and its place in that.
  void find_requests() {
    AxisReducer count(ctx_, {tokens, batch}, {1});
    request_ = count.drop(count(ReduceOp::sum, DType::i64, [&](At at) {
      Expr begun = ir::binary(Op::less_equal, start(at[1]), ctx_.c.index(at[0]));
      return ctx_.c.cast(begun, DType::i64);
    }));
    request_ = map(ctx_, DType::i64, request_, [&](Expr e) { return ir::sub(e, whole(1)); });
    realize(ctx_, request_, "request of a token");
    place_ = generate(ctx_, DType::i64, {tokens},
                      [&](At at) { return ir::sub(ctx_.c.index(at[0]), start(of(at[0]))); });
    realize(ctx_, place_, "place of a token in its request");
  }

  OpContext& ctx_;
  int64_t history_;
  const TensorBox& starts_;
  TensorBox request_, place_;
};

Values varlen_ngram_hash(OpContext& ctx) {
  ir::Context& c = ctx.c;
  const Form f = form_of(ctx, kEos, kOffsets);
  const int64_t history = f.history(), captured = ctx.attr_int("state_update_capacity", 0);
  TBX_MODEL(captured >= 0 && captured <= 8, "state_update_capacity is {}, expected 0 to 8", captured);
  TBX_MODEL((captured > 0) == ctx.has(kCaptures), "capture_count goes with a state_update_capacity above 0");
  require(ctx, 0, "input_ids", f.type, 1);
  require(ctx, kStarts, "cumulative_sequence_length", DType::i32, 1);
  const TensorBox& ids = ctx.in(0);
  const Requests requests(ctx, f);
  auto token = [&](At at, int64_t k) {
    return requests.element(ids, kPast, requests.of(at[0]), requests.back(at, k), filler(ctx, f, kEos));
  };
  const Expr no_segment = c.constant_int(DType::i32, 0);
  auto parts = [&](At at, int64_t k) -> Expr {
    if (!ctx.has(kSegments)) return nullptr;
    auto segment = [&](int64_t j) {
      return requests.element(ctx.in(kSegments), kPastSegments, requests.of(at[0]), requests.back(at, j),
                              no_segment);
    };
    Expr differs = ir::binary(Op::not_equal, segment(k - 1), segment(k));
    if (ctx.has(kPastSegments)) return differs;
    const Expr first = c.constant_int(DType::i64, 0);
    return ir::binary(Op::logical_and, differs, ir::binary(Op::greater_equal, requests.back(at, k), first));
  };
  Values out{hashes(ctx, f, kEos, kOffsets, {requests.tokens}, token, parts), {}, {}, {}};
  auto trailing = [&](const TensorBox& now, int before, DType type, Expr otherwise) {
    return generate(ctx, type, {requests.batch, history}, [&](At at) {
      const Expr whole = c.constant_int(DType::i64, history);
      Expr from = ir::add(ir::sub(requests.length(at[0]), whole), c.index(at[1]));
      return requests.element(now, before, at[0], from, otherwise);
    });
  };
  if (ctx.wants(1)) out[1] = trailing(ids, kPast, f.type, filler(ctx, f, kEos));
  if (ctx.wants(2)) {
    TBX_MODEL(ctx.has(kSegments), "the output present_segment_ids needs the input segment_ids");
    out[2] = trailing(ctx.in(kSegments), kPastSegments, DType::i32, no_segment);
  }
  if (ctx.wants(3)) {
    TBX_MODEL(captured > 0, "the output state_update needs a state_update_capacity above 0");
    out[3] = generate(ctx, f.type, {requests.batch, captured, history}, [&](At at) {
      Expr n = c.cast(ctx.in(kCaptures).load(ctx.program, at.first(1)), DType::i64);
      Expr used = ir::binary(Op::less, c.index(at[1]), ir::binary(Op::min, n, requests.length(at[0])));
      Expr from = c.index(at[1] + SymInt(1) - SymInt(history) + at[2]);
      return ir::where(used, requests.element(ids, kPast, at[0], from, filler(ctx, f, kEos)),
                       c.constant_int(f.type, f.pad));
    });
  }
  return out;
}

} // namespace

void register_ngram_hash(Registry& r) {
  r.add("NGramHashMapping", since(1), ngram_hash, "com.microsoft");
  r.add("VarlenNGramHashMapping", since(1), varlen_ngram_hash, "com.microsoft");
}

} // namespace tbx::lowering
