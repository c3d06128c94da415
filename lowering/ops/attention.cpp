// Attention as one extern call; what graph/passes/fuse_attention.cpp makes.
#include <fmt/format.h>

#include <climits>
#include <optional>

#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

const std::vector<int> kSwapLast{0, 1, 3, 2};

TensorBox with_batch(OpContext& ctx, const TensorBox& x) {
  std::vector<int> axes;
  for (int k = x.rank(); k < 4; ++k) axes.push_back(k - x.rank());
  return axes.empty() ? x : ir::unsqueeze(ctx.program, x, axes);
}

/// `x` [B, H, T, D] with one of each `repeat` heads; nullopt unless all of them show the same elements.
std::optional<TensorBox> one_of_each(OpContext& ctx, const TensorBox& x, int64_t repeat) {
  if (x.is_identity_view()) return std::nullopt;
  SymInts sizes = x.sizes(), at = loop_vars(ctx.c, 4), any = at;
  sizes[1] = x.sizes()[1].constant() / repeat;
  at[1] = at[1] * SymInt(repeat);
  any[1] = at[1] + ctx.c.var(4);
  SymInts extents = sizes;
  extents.emplace_back(repeat);
  const ir::Substitution to_any{any, {}};
  for (SymInt index : x.index_map())
    if (ir::depends_on(ir::simplify(ir::substitute(index, to_any), {extents, {}}), ctx.c.var(4).node()))
      return std::nullopt;
  return x.view(ctx.c, sizes, at);
}

/// Keys and values whose heads are repeated for the query heads that share them, as they were before.
void show_heads_once(OpContext& ctx, AttentionCore& a) {
  if (!a.k.sizes()[1].is_constant()) return;
  const int64_t heads = a.k.sizes()[1].constant();
  for (int64_t repeat = heads; repeat > 1; --repeat) {
    if (heads % repeat != 0) continue;
    auto k = one_of_each(ctx, a.k, repeat);
    auto v = k ? one_of_each(ctx, a.v, repeat) : std::nullopt;
    if (!v) continue;
    a.k = *k;
    a.v = *v;
    return;
  }
}

/// Whether a mask that has `have` elements along a dimension leaves `want` scores as many, which is assumed
/// where only a run knows: one that says otherwise has a program without the assumption.
bool repeats(OpContext& ctx, SymInt have, SymInt want) {
  ir::Program& p = ctx.program;
  if (have.is(1) || ir::provably_equal(have, want)) return true;
  if (want.is_constant() && (have.is_constant() || want.is(1))) return false;
  if (want.is_constant()) return true;                              // a mask of another size is wrong
  const bool assumes = p.assume_broadcast || p.assume_exact_floats; // there are programs with less
  if (!assumes || ir::has_unbacked(have) || ir::has_unbacked(want)) return false;
  SymInt unlike = ir::max(have - want, want - have);
  if (!have.is_constant() && !p.assume_broadcast) unlike = ir::min(unlike, have - 1);
  p.add_check(unlike, true,
              fmt::format("a mask of {} for {} scores", ir::to_string(have), ir::to_string(want)), true);
  return true;
}

/// The sum of the masks as the kernel takes it, which repeats a mask where its size is 1; all else has to be
/// equal. False where a mask may make the scores larger.
bool take_masks(OpContext& ctx, AttentionCore& a, const std::vector<TensorBox>& masks) {
  const SymInts scores = {a.q.sizes()[0], a.q.sizes()[1], a.q.sizes()[2], a.k.sizes()[2]};
  for (const TensorBox& mask : masks)
    for (int d = 0; d < 4; ++d)
      if (!repeats(ctx, mask.sizes()[d], scores[d])) return false;
  if (masks.empty()) return true;
  TensorBox sum = masks[0];
  for (size_t i = 1; i < masks.size(); ++i) sum = map(ctx, DType::f32, sum, masks[i], ir::add);
  SymInts sizes = scores;
  for (int d = 0; d < 4; ++d)
    if (sum.sizes()[d].is(1)) sizes[d] = 1;
  a.mask = ir::expand(ctx.program, sum, sizes);
  return true;
}

/// `mask` of scores whose batch is seen as [batch / windows, windows], for scores of [batch, ...].
TensorBox joined_windows(OpContext& ctx, const TensorBox& mask, SymInt batch, int64_t windows) {
  const SymInts& have = mask.sizes();
  SymInts sizes(have.begin() + 1, have.end()), at = loop_vars(ctx.c, mask.rank() - 1);
  const SymInt entry = at[0];
  if (!have[0].is(1) || !have[1].is(1)) sizes[0] = batch;
  at[0] = have[1].is(1) ? SymInt(0) : ir::mod(entry, windows);
  at.insert(at.begin(), have[0].is(1) ? SymInt(0) : ir::floordiv(entry, windows));
  return mask.view(ctx.c, sizes, at);
}

/// The masks for scores of `batch` entries; those of windows are told by the attribute `windows`, by mask.
std::vector<TensorBox> masks_of(OpContext& ctx, SymInt batch) {
  const std::vector<int64_t> windows = ctx.attr_ints("windows");
  const int rank = ctx.rank(0);
  std::vector<TensorBox> masks;
  for (int i = 3; i < ctx.num_inputs(); ++i) {
    TensorBox mask = ctx.in(i);
    if (!windows.empty() && windows[i - 3] != 0 && mask.rank() >= rank) {
      if (mask.rank() == rank) mask = ir::unsqueeze(ctx.program, mask, std::vector<int>{0});
      mask = joined_windows(ctx, mask, batch, windows[i - 3]);
    }
    masks.push_back(mask);
  }
  return masks;
}

/// The operands of the kernel that never stores scores; nullopt where it does not take them, or two products
/// and a softmax are faster.
std::optional<AttentionCore> core_of(OpContext& ctx) {
  AttentionCore a;
  a.q = with_batch(ctx, ctx.in(0));
  a.k = ir::permute(ctx.program, with_batch(ctx, ctx.in(1)), kSwapLast);
  a.v = with_batch(ctx, ctx.in(2));
  const SymInts &q = a.q.sizes(), &k = a.k.sizes(), &v = a.v.sizes();
  for (int d : {0, 1})
    if (!ir::provably_equal(q[d], k[d]) || !ir::provably_equal(q[d], v[d])) return std::nullopt;
  if (!q[1].is_constant() || !ir::provably_equal(q[3], k[3])) return std::nullopt;
  if (is_fast_fused(ctx.program.target, operand_type(ctx, a), q[2], k[2]) == false) return std::nullopt;
  std::vector<TensorBox> wide;
  for (const TensorBox& mask : masks_of(ctx, ctx.in(0).sizes()[0])) {
    if (mask.rank() > ctx.rank(0)) return std::nullopt;
    wide.push_back(with_batch(ctx, mask));
  }
  if (!take_masks(ctx, a, wide)) return std::nullopt;
  require_equal(ctx, k[2], v[2], "lengths of key and value");
  show_heads_once(ctx, a);
  a.scale = ctx.attr_float("scale", 1);
  a.zero_undefined_rows = ctx.attr_int("zero_undefined_rows", 0) != 0;
  return a;
}

/// What the nodes of the model say, the scale where the softmax reads the scores: there it costs nothing.
TensorBox composed(OpContext& ctx) {
  TensorBox s = matmul_boxes(ctx, ctx.in(0), ctx.in(1), DType::f32);
  if (const float scale = ctx.attr_float("scale", 1); scale != 1)
    s = map(ctx, DType::f32, s, [&](Expr e) { return ir::mul(e, number(e, scale)); });
  for (const TensorBox& mask : masks_of(ctx, s.sizes()[0])) s = map(ctx, DType::f32, s, mask, ir::add);
  TensorBox p = lower_as(ctx, "Softmax", 13, {s}, {{"axis", int64_t{-1}}}).at(0).tensor;
  if (ctx.attr_int("zero_undefined_rows", 0) != 0)
    p = map(ctx, DType::f32, p, [](Expr e) { return ir::where(ir::unary(Op::is_nan, e), number(e, 0), e); });
  store_like(ctx, p, ctx.in(2));
  return matmul_boxes(ctx, p, ctx.in(2), DType::f32);
}

/// Inputs q [(B,) H, S, D], k transposed [(B,) H, D, T], v [(B,) H, T, Dv], and any number of masks to be
/// added to the scores; all f32. Batches and masks broadcast as in the products and sums that they were.
Values fused_attention(OpContext& ctx) {
  auto a = core_of(ctx);
  if (!a) return {composed(ctx)};
  TensorBox y = attend_fused(ctx, *a);
  return {ctx.rank(0) == 3 ? ir::squeeze(ctx.program, y, std::vector<int>{0}) : y};
}

} // namespace

void register_attention(Registry& r) {
  r.add("FusedAttention", since(1), fused_attention, "tensorbox");
  r.masks(3, INT_MAX, {"FusedAttention"}, "tensorbox");
  r.narrow(Narrow::follows, {"FusedAttention"}, "tensorbox");
}

} // namespace tbx::lowering
