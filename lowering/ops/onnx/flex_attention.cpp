// FlexAttention (ai.onnx.preview 1): attention whose scores and probabilities pass through subgraphs. The
// subgraphs are lowered in place, so that they fuse with the scaling and the softmax around them.
#include <cmath>

#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

void check_equal(OpContext& ctx, SymInt a, SymInt b, const char* what) {
  if (a.is_constant() && b.is_constant())
    TBX_MODEL(a.constant() == b.constant(), "{} differ: {} and {}", what, a.constant(), b.constant());
  else
    ctx.program.add_check(a - b, true, fmt::format("FlexAttention: {} differ", what));
}

/// x through the graph of attribute `name`, where there is one; the shape and type must stay.
TensorBox modified(OpContext& ctx, const char* name, const TensorBox& x) {
  auto body = ctx.attr_graph(name);
  if (!body) return x;
  TBX_MODEL(body->inputs.size() == 1 && body->outputs.size() == 1,
            "'{}' has {} inputs and {} outputs, expected one of each", name, body->inputs.size(),
            body->outputs.size());
  LoweredValue out = ctx.lower_subgraph(body, {x}).at(0);
  TBX_MODEL(out.is_tensor() && out.dtype() == x.dtype(), "'{}' gives {} for {}", name, name_of(out.dtype()),
            name_of(x.dtype()));
  TensorBox y = ctx.box(out);
  TBX_MODEL(y.rank() == 4, "'{}' gives a tensor of rank {}, expected 4", name, y.rank());
  for (int d = 0; d < 4; ++d)
    check_equal(ctx, y.sizes()[d], x.sizes()[d], "shapes of scores and modified scores");
  return y;
}

/// q [B, Hq, L, E], k [B, Hkv, S, E], v [B, Hkv, S, Ev] -> [B, Hq, L, Ev].
std::vector<LoweredValue> flex_attention(OpContext& ctx) {
  const TensorBox &q = ctx.in(0), &k = ctx.in(1), &v = ctx.in(2);
  for (const TensorBox* x : {&q, &k, &v})
    TBX_MODEL(x->rank() == 4, "an input has rank {}, expected 4", x->rank());
  TBX_MODEL(q.dtype() == k.dtype() && is_float(q.dtype()), "query and key are of types {} and {}",
            name_of(q.dtype()), name_of(k.dtype()));
  check_equal(ctx, q.sizes()[0], k.sizes()[0], "batch sizes of query and key");
  check_equal(ctx, q.sizes()[0], v.sizes()[0], "batch sizes of query and value");
  check_equal(ctx, q.sizes()[3], k.sizes()[3], "head sizes of query and key");
  check_equal(ctx, k.sizes()[1], v.sizes()[1], "heads of key and value");
  check_equal(ctx, k.sizes()[2], v.sizes()[2], "lengths of key and value");
  SymInt batch = q.sizes()[0], heads = q.sizes()[1], shared_heads = k.sizes()[1], rows = q.sizes()[2],
         columns = k.sizes()[2];
  bool grouped = heads != shared_heads;
  if (grouped) {
    if (!heads.is_constant() || !shared_heads.is_constant())
      ask_for_sizes("the numbers of heads must be known while compiling");
    TBX_MODEL(shared_heads.constant() > 0 && heads.constant() % shared_heads.constant() == 0,
              "{} query heads for {} key heads", heads.constant(), shared_heads.constant());
  }
  // Query heads that share a key head become a dimension of their own.
  SymInt group = grouped ? SymInt(heads.constant() / shared_heads.constant()) : SymInt(1);
  auto split = [&](const TensorBox& x) {
    return grouped ? ir::reshape(ctx.program, x, {batch, shared_heads, group, x.sizes()[2], x.sizes()[3]})
                   : x;
  };
  auto joined = [&](const TensorBox& x, SymInt width) {
    return grouped ? ir::reshape(ctx.program, x, {batch, heads, rows, width}) : x;
  };
  auto spread = [&](const TensorBox& x) {
    const int axis[] = {2};
    return grouped ? ir::unsqueeze(ctx.program, x, axis) : x;
  };

  double scale = ctx.attr_float("scale", 0);
  if (!ctx.has_attr("scale")) {
    auto width = q.sizes()[3].as_constant();
    if (!width) ask_for_sizes("the head size must be known while compiling");
    TBX_MODEL(*width > 0, "the head size is 0");
    scale = 1 / std::sqrt(static_cast<double>(*width));
  }
  // Query and key each take the root of the scale before the product, which keeps narrow scores in range.
  auto scaled = [&](const TensorBox& x) {
    return map(ctx, x.dtype(), x, [&](Expr e) {
      return ir::mul(e, rounded(number(e, std::sqrt(static_cast<float>(std::abs(scale)))), x.dtype()));
    });
  };
  std::vector<int> swap{0, 1, 3, 2};
  if (grouped) swap = {0, 1, 2, 4, 3};
  TensorBox keys = ir::permute(ctx.program, spread(scaled(k)), swap);
  TensorBox scores =
      matrix_product(ctx, split(scaled(q)), keys, nullptr, scale < 0 ? -1.f : 1.f, 1, q.dtype());
  DType precision = ctx.attr_dtype("softmax_precision", q.dtype() == DType::f64 ? DType::f64 : DType::f32);
  TBX_MODEL(is_float(precision), "softmax_precision is {}", name_of(precision));
  TensorBox s = modified(ctx, "score_mod", convert(ctx, joined(scores, columns), precision));
  TensorBox p = lower_as(ctx, "Softmax", 13, {s}, {{"axis", int64_t{-1}}}).at(0).tensor;
  p = modified(ctx, "prob_mod", p);
  TensorBox y = matrix_product(ctx, split(p), spread(convert(ctx, v, precision)), nullptr, 1, 1, precision);
  return {convert(ctx, joined(y, v.sizes()[3]), v.dtype())};
}

} // namespace

void register_flex_attention(Registry& r) {
  r.add("FlexAttention", since(1), flex_attention, "ai.onnx.preview");
}

} // namespace tbx::lowering
