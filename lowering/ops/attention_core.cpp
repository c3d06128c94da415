#include "lowering/ops/attention_core.h"

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

const std::vector<int> kSwapLast{0, 1, 3, 2}, kSwapHeads{0, 2, 1, 3};

/// Every head with keys of its own.
TensorBox repeated(OpContext& ctx, const TensorBox& x, int64_t heads) {
  const int64_t own = known_size(x.sizes()[1], "the number of key heads");
  if (own == heads) return x;
  SymInts sizes{x.sizes()[0], own, heads / own, x.sizes()[2], x.sizes()[3]};
  const int axis[] = {2};
  TensorBox y = ir::expand(ctx.program, ir::unsqueeze(ctx.program, x, axis), sizes);
  return ir::reshape(ctx.program, y, {sizes[0], heads, sizes[3], sizes[4]});
}

/// Two products and a softmax between them.
TensorBox composed(OpContext& ctx, const AttentionCore& a, TensorBox* scores, TensorBox* probabilities) {
  const int64_t heads = known_size(a.q.sizes()[1], "the number of heads");
  TensorBox q = convert(ctx, a.q, DType::f32), k = repeated(ctx, convert(ctx, a.k, DType::f32), heads),
            v = repeated(ctx, convert(ctx, a.v, DType::f32), heads);
  TensorBox s =
      matrix_product(ctx, q, ir::permute(ctx.program, k, kSwapLast), nullptr, a.scale, 1, DType::f32);
  if (a.softcap > 0)
    s = map(ctx, DType::f32, s, [&](Expr e) {
      return ir::mul(ir::unary(Op::tanh, ir::div(e, number(e, a.softcap))), number(e, a.softcap));
    });
  if (a.mask) s = map(ctx, DType::f32, s, convert(ctx, *a.mask, DType::f32), ir::add);
  auto visible = [&](double otherwise) {
    if (!a.causal) return s;
    return generate(ctx, DType::f32, s.sizes(), [&](std::span<const SymInt> at) {
      ir::Context& c = ctx.c;
      Expr start = a.starts ? to_compute(a.starts->load(ctx.program, at.first(1)), DType::i64)
                            : c.index(a.from_first ? SymInt(0) : s.sizes()[3] - s.sizes()[2]);
      Expr behind = ir::sub(ir::add(start, c.index(at[2])), c.index(at[3]));
      Expr sees = ir::binary(Op::greater_equal, behind, number(behind, 0));
      if (a.window > 0)
        sees = ir::binary(Op::logical_and, sees,
                          ir::binary(Op::less, behind, number(behind, static_cast<double>(a.window))));
      return ir::where(sees, s.load(ctx.program, at), c.constant(DType::f32, otherwise));
    });
  };
  if (scores) {
    realize(ctx, s, "output of attention");
    *scores = visible(a.unseen);
  }
  TensorBox seen = visible(-std::numeric_limits<double>::infinity());
  TensorBox p;
  if (a.sinks) {
    // The sink as one more score, whose probability is left out.
    SymInts column = seen.sizes();
    column[3] = 1;
    SymInt one = column[1];
    TensorBox sink = ir::expand(
        ctx.program, ir::reshape(ctx.program, convert(ctx, *a.sinks, DType::f32), {1, one, 1, 1}), column);
    TensorBox all = concatenate(ctx, {seen, sink}, 3);
    p = lower_as(ctx, "Softmax", 13, {all}, {{"axis", int64_t{-1}}}).at(0).tensor;
    p = ir::slice(ctx.program, p, 3, 0, 1, seen.sizes()[3]);
  } else {
    p = lower_as(ctx, "Softmax", 13, {seen}, {{"axis", int64_t{-1}}}).at(0).tensor;
  }
  if (a.zero_hidden_rows && a.mask) {
    TensorBox most = lower_as(ctx, "ReduceMax", 13, {seen}, {{"axes", std::vector<int64_t>{3}}}).at(0).tensor;
    p = map(ctx, DType::f32, p, ir::expand(ctx.program, most, seen.sizes()), [](Expr share, Expr top) {
      const Expr hidden = ir::binary(Op::equal, top, number(top, -std::numeric_limits<double>::infinity()));
      return ir::where(hidden, number(share, 0), share);
    });
  }
  if (probabilities) {
    realize(ctx, p, "output of attention");
    *probabilities = p;
  }
  store_like(ctx, p, v);
  return matrix_product(ctx, p, v, nullptr, 1, 1, DType::f32);
}

} // namespace

/// Queries, keys or values as they lie in memory, halves as well.
static TensorBox as_stored(OpContext& ctx, const TensorBox& x) {
  return shown_half(ctx, convert(ctx, x, DType::f32));
}

TensorBox join_tokens(OpContext& ctx, const std::vector<TensorBox>& parts) {
  if (!ctx.program.target.cuda) return concatenate(ctx, parts, 2);
  std::vector<TensorBox> halves;
  halves.reserve(parts.size());
  for (const TensorBox& part : parts) halves.push_back(as_stored(ctx, part));
  const DType type = halves.front().dtype();
  const bool alike =
      std::all_of(halves.begin(), halves.end(), [&](const TensorBox& half) { return half.dtype() == type; });
  if (!is_half(type) || !alike) return concatenate(ctx, parts, 2);
  return wide(ctx, concatenate(ctx, halves, 2));
}

DType operand_type(OpContext& ctx, const AttentionCore& a) {
  std::set<DType> types;
  for (const TensorBox* x : {&a.q, &a.k, &a.v})
    types.insert(ir::memory_type(ctx.program, as_stored(ctx, *x)));
  return types.size() == 1 ? *types.begin() : DType::undefined;
}

std::optional<bool> is_fast_fused(const Target& target, DType operands, SymInt queries, SymInt keys) {
  if (target.cuda) return true; // one launch instead of three, and no scores in memory
  // Its products take less time there than storing the scores does, at any length.
  if (target.bf16_tiles && operands == DType::bf16) return true;
  if (queries.is_constant() && queries.constant() <= extern_kernels::kFewQueries) return true;
  // Not storing the scores has to outweigh that the products of the library are faster. Where the CPU
  // multiplies vectors of 512 bits at full rate, storing takes more of the time: measured on Zen 5 at 49 x 49
  // (slower), 64 x 64 (as fast), 100 x 100, 128 x 128 and 197 x 197 (faster). Else the scores of a head have
  // to be more than half of what the cache of a core holds: measured with 1 MB at 128 x 128 and 4096 x 77
  // (slower), 197 x 197 and 256 x 256 (as fast) and 384 x 384 (faster).
  const int64_t min_keys = target.wide_multipliers ? 96 : 256;
  const int64_t min_scores =
      target.wide_multipliers ? min_keys * min_keys : target.l2_bytes / 2 / size_of(DType::f32);
  if (keys.is_constant() && keys.constant() < min_keys) return false;
  if (!queries.is_constant() || !keys.is_constant()) return std::nullopt;
  return queries.constant() >= min_scores / keys.constant();
}

void store_like(OpContext& ctx, const TensorBox& shares, const TensorBox& values) {
  const DType type = ir::memory_type(ctx.program, values);
  if (is_half(type) && shares.is_identity_view() && !shares.storage()->is_realized())
    shares.storage()->stored = type;
}

/// Masks hold the lowest number of float32, which is none of a narrower type: its own lowest hides as much.
static TensorBox within_range(OpContext& ctx, const TensorBox& mask, DType type) {
  const double largest = type == DType::f16 ? 65504 : 3.3895313892515355e38;
  return map(ctx, DType::f32, convert(ctx, mask, DType::f32), [&](Expr e) {
    const Expr low = ir::binary(Op::max, e, number(e, -largest));
    return ir::where(ir::unary(Op::is_inf, e), e, ir::binary(Op::min, low, number(e, largest)));
  });
}

TensorBox attend_fused(OpContext& ctx, const AttentionCore& a) {
  extern_kernels::AttentionProblem problem;
  problem.scale = a.scale;
  problem.causal = a.causal;
  problem.from_end = !a.starts && !a.from_first;
  problem.has_mask = a.mask.has_value();
  problem.has_starts = a.starts.has_value();
  problem.has_sinks = a.sinks.has_value();
  problem.window = a.window;
  problem.softcap = a.softcap;
  problem.zero_undefined_rows = a.zero_undefined_rows;
  problem.zero_hidden_rows = a.zero_hidden_rows;
  problem.tokens_first = true; // whatever follows joins the heads of a token again
  ir::ExternCall call;
  auto operand = [&](const TensorBox& x, const char* what) {
    call.inputs.push_back(library_operand(ctx, x, what));
  };
  // The kernel reads halves as they lie. Libraries of GPUs give the type that they multiply.
  std::array<TensorBox, 3> shown;
  std::array<DType, 3> in_memory{};
  for (int i = 0; const TensorBox* x : {&a.q, &a.k, &a.v}) {
    shown[i] = as_stored(ctx, *x);
    in_memory[i] = ir::memory_type(ctx.program, shown[i]);
    ++i;
  }
  // Their queries have the type of narrow keys and values.
  if (ctx.program.target.cuda && is_half(in_memory[1]) && in_memory[1] == in_memory[2] &&
      in_memory[0] == DType::f32) {
    shown[0] = convert(ctx, shown[0], in_memory[1]);
    in_memory[0] = in_memory[1];
  }
  for (const TensorBox& x : shown) operand(x, "operand of attention");
  const std::set<DType> types(in_memory.begin(), in_memory.end());
  const bool narrow =
      ctx.program.target.cuda && gives_half(ctx) && types.size() == 1 && is_half(*types.begin());
  const DType type = narrow ? *types.begin() : DType::f32;
  auto optional = [&](const std::optional<TensorBox>& x, DType type) {
    if (x)
      operand(ir::wide_in_memory(ctx.program, convert(ctx, *x, type)), "operand of attention");
    else
      call.inputs.emplace_back();
  };
  if (narrow && a.mask)
    operand(convert(ctx, within_range(ctx, *a.mask, type), type), "mask of attention");
  else if (a.mask || a.starts || a.sinks)
    optional(a.mask, DType::f32);
  if (a.starts || a.sinks) optional(a.starts, DType::i32);
  if (a.sinks) optional(a.sinks, DType::f32);
  call.problem = problem;
  SymInts sizes = {a.q.sizes()[0], a.q.sizes()[2], a.q.sizes()[1], a.v.sizes()[3]};
  ir::BufferId out = ctx.program.new_buffer("", type, sizes);
  call.outputs = {out};
  ctx.program.operations.push_back({std::move(call), {}, "attention"});
  return wide(ctx, ir::permute(ctx.program, ir::make_buffer_box(ctx.program, out), kSwapHeads));
}

/// The mask with the sizes of the scores, or 1 where it is repeated: kernels read as many elements of it as
/// there are scores. A run may have to say that sizes are equal.
static TensorBox mask_of_scores(OpContext& ctx, const AttentionCore& a) {
  const TensorBox& mask = *a.mask;
  TBX_MODEL(mask.rank() == 4, "the mask of attention has rank {}, expected 4", mask.rank());
  SymInts sizes = {a.q.sizes()[0], a.q.sizes()[1], a.q.sizes()[2], a.k.sizes()[2]};
  for (int d = 0; d < 4; ++d) {
    const SymInt have = mask.sizes()[d];
    TBX_MODEL(!have.is_constant() || have.is(1) || !sizes[d].is_constant() ||
                  ir::provably_equal(have, sizes[d]),
              "dimension {} of the mask of attention is {}, that of the scores {}", d, have.constant(),
              sizes[d].constant());
    if (have.is(1)) sizes[d] = 1;
  }
  return ir::expand(ctx.program, mask, sizes);
}

TensorBox attend(OpContext& ctx, const AttentionCore& given, TensorBox* scores, TensorBox* probabilities) {
  AttentionCore a = given;
  for (const TensorBox* x : {&a.q, &a.k, &a.v})
    TBX_MODEL(x->rank() == 4, "an operand of attention has rank {}, expected 4", x->rank());
  require_equal(ctx, a.q.sizes()[0], a.k.sizes()[0], "batch sizes of query and key");
  require_equal(ctx, a.q.sizes()[0], a.v.sizes()[0], "batch sizes of query and value");
  require_equal(ctx, a.q.sizes()[3], a.k.sizes()[3], "head sizes of query and key");
  require_equal(ctx, a.k.sizes()[1], a.v.sizes()[1], "heads of key and value");
  require_equal(ctx, a.k.sizes()[2], a.v.sizes()[2], "lengths of key and value");
  if (a.mask) a.mask = mask_of_scores(ctx, a);
  const bool plain = !a.sinks && a.softcap == 0 && a.window == 0;
  TensorBox y = scores || probabilities ||
                        (plain && is_fast_fused(ctx.program.target, operand_type(ctx, a), a.q.sizes()[2],
                                                a.k.sizes()[2]) == false)
                    ? composed(ctx, a, scores, probabilities)
                    : attend_fused(ctx, a);
  return convert(ctx, y, a.q.dtype());
}

int64_t head_count(OpContext& ctx, const char* attribute) {
  const int64_t heads = ctx.required_int(attribute);
  TBX_MODEL(heads > 0 && heads <= std::numeric_limits<int32_t>::max(), "{} is {}", attribute, heads);
  return heads;
}

TensorBox split_heads(OpContext& ctx, const TensorBox& x, int64_t heads) {
  TBX_MODEL(x.rank() == 3, "a tensor of heads has rank {}, expected 3", x.rank());
  SymInt width = x.sizes()[2];
  TBX_MODEL(heads > 0 && (!width.is_constant() || width.constant() % heads == 0),
            "{} elements are not divisible into {} heads", width.is_constant() ? width.constant() : -1,
            heads);
  SymInts sizes{x.sizes()[0], x.sizes()[1], heads, ir::floordiv(width, heads)};
  return ir::permute(ctx.program, ir::reshape(ctx.program, x, sizes), kSwapHeads);
}

TensorBox join_heads(OpContext& ctx, const TensorBox& x) {
  TensorBox y = ir::permute(ctx.program, x, kSwapHeads);
  return ir::reshape(ctx.program, y, {y.sizes()[0], y.sizes()[1], y.sizes()[2] * y.sizes()[3]});
}

TensorBox padding_mask(OpContext& ctx, const TensorBox& x, SymInt batch, SymInt queries, SymInt keys,
                       double filter) {
  TBX_MODEL(x.dtype() == DType::i32, "the mask is of type {}, expected int32", name_of(x.dtype()));
  ir::Program& p = ctx.program;
  ir::Context& c = ctx.c;
  auto masked = [&](Expr keep) {
    return ir::where(keep, c.constant(DType::f32, 0), c.constant(DType::f32, filter));
  };
  if (x.rank() == 1) {
    SymInt n = x.sizes()[0];
    const bool starts = !ir::provably_equal(n, batch) && ir::provably_equal(n, batch * SymInt(2));
    if (!starts && !ir::provably_equal(n, batch) && !ir::provably_equal(n, batch * SymInt(3) + SymInt(2))) {
      if (!n.is_constant() || !batch.is_constant())
        ask_for_sizes("the batch size must be known to tell what kind of mask this is");
      TBX_MODEL(false, "the mask has {} elements for a batch of {}: expected one, two or three and 2 more",
                n.constant(), batch.constant());
    }
    return generate(ctx, DType::f32, {batch, 1, 1, keys}, [&](std::span<const SymInt> at) {
      Expr key = c.index(at[3]);
      auto bound = [&](SymInt i) { return to_compute(x.load(p, {&i, 1}), DType::i64); };
      Expr keep = ir::binary(Op::less, key, bound(at[0]));
      if (starts)
        keep = ir::binary(Op::logical_and, keep, ir::binary(Op::greater_equal, key, bound(at[0] + batch)));
      return masked(keep);
    });
  }
  TBX_MODEL(x.rank() <= 4 && x.rank() >= 2, "the mask has rank {}, expected 1 to 4", x.rank());
  TensorBox m = x;
  if (x.rank() == 4) {
    // Rows of all positions: those of the queries are the last ones.
    m = ir::slice(p, ir::slice(p, m, 3, 0, 1, keys), 2, keys - queries, 1, queries);
  } else {
    require_equal(ctx, x.sizes().back(), keys, "lengths of mask and keys");
    if (x.rank() == 3) require_equal(ctx, x.sizes()[1], queries, "lengths of mask and queries");
    m = ir::unsqueeze(p, m, x.rank() == 3 ? std::vector<int>{1} : std::vector<int>{1, 2});
  }
  if (!m.sizes()[0].is(1)) require_equal(ctx, m.sizes()[0], batch, "batch sizes of mask and queries");
  return map(ctx, DType::f32, m, [&](Expr e) { return masked(ir::binary(Op::greater, e, number(e, 0))); });
}

void require_equal(OpContext& ctx, SymInt a, SymInt b, const std::string& what) {
  if (a.is_constant() && b.is_constant())
    TBX_MODEL(a == b, "{} differ: {} and {}", what, a.constant(), b.constant());
  else
    ctx.program.add_check(a - b, true, fmt::format("{}: {} differ", ctx.node.op_type, what));
}

int64_t known_size(SymInt size, const char* what) {
  if (!size.is_constant()) ask_for_sizes(fmt::format("{} must be known while compiling", what));
  return size.constant();
}

float attention_scale(OpContext& ctx, int64_t head_size) {
  float scale = ctx.attr_float("scale", 0);
  if (scale != 0) return scale;
  TBX_MODEL(head_size > 0, "the head size is {}", head_size);
  return 1 / std::sqrt(static_cast<float>(head_size));
}

TensorBox rotated(OpContext& ctx, const TensorBox& x, const TensorBox& cos, const TensorBox& sin,
                  const std::function<Expr(SymInt, SymInt)>& position, bool interleaved) {
  for (const TensorBox* cache : {&cos, &sin}) {
    TBX_MODEL(cache->rank() == 2, "a cache of the rotation has rank {}, expected 2", cache->rank());
    TBX_MODEL(is_float(cache->dtype()), "a cache of the rotation is of type {}", name_of(cache->dtype()));
  }
  require_equal(ctx, cos.sizes()[0], sin.sizes()[0], "lengths of cos_cache and sin_cache");
  require_equal(ctx, cos.sizes()[1], sin.sizes()[1], "widths of cos_cache and sin_cache");
  const int64_t width = known_size(x.sizes()[3], "the head size");
  const int64_t half = known_size(cos.sizes()[1], "the width of cos_cache");
  TBX_MODEL(half * 2 <= width, "the caches turn {} elements of heads of {}", half * 2, width);
  if (half == 0) return x;
  ir::Program& p = ctx.program;
  // Element `which` (0: real, 1: imaginary) of pair j.
  auto part = [&](std::span<const SymInt> at, SymInt j, int64_t which) {
    SymInts from(at.begin(), at.begin() + 3);
    from.push_back(interleaved ? j * SymInt(2) + SymInt(which) : j + SymInt(which * half));
    return to_compute(x.load(p, from), DType::f32);
  };
  auto turned = [&](std::span<const SymInt> at, SymInt j, int64_t which) {
    const SymInt place[] = {ctx.c.indirect(position(at[0], at[2]), cos.sizes()[0], false), j};
    Expr c = to_compute(cos.load(p, place), DType::f32), s = to_compute(sin.load(p, place), DType::f32);
    Expr real = part(at, j, 0), imaginary = part(at, j, 1);
    return which ? ir::add(ir::mul(real, s), ir::mul(imaginary, c))
                 : ir::sub(ir::mul(real, c), ir::mul(imaginary, s));
  };
  std::vector<TensorBox> parts;
  SymInts sizes = x.sizes();
  if (interleaved) {
    sizes[3] = half * 2;
    parts.push_back(generate(ctx, x.dtype(), sizes, [&](std::span<const SymInt> at) {
      SymInt j = ir::floordiv(at[3], 2);
      Expr odd = ctx.c.index(ir::mod(at[3], 2));
      return ir::where(ir::binary(Op::equal, odd, number(odd, 1)), turned(at, j, 1), turned(at, j, 0));
    }));
  } else {
    sizes[3] = half;
    for (int64_t which : {0, 1})
      parts.push_back(generate(ctx, x.dtype(), sizes,
                               [&](std::span<const SymInt> at) { return turned(at, at[3], which); }));
  }
  if (half * 2 < width) parts.push_back(ir::slice(p, x, 3, half * 2, 1, width - half * 2));
  return parts.size() == 1 ? parts[0] : concatenate(ctx, parts, 3);
}

} // namespace tbx::lowering
