// Attention as one extern call; what fusion/passes/fuse_attention.cpp makes.
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

/// Inputs q [(B,) H, S, D], k transposed [(B,) H, D, T] or with `plain_keys` [(B,) Hkv, T, D], v
/// [(B,) Hkv, T, Dv], and a mask to be added that broadcasts to [(B,) H, S, T]; all f32.
std::vector<LoweredValue> fused_attention(OpContext& ctx) {
  ir::Program& p = ctx.program;
  auto four = [&](TensorBox x) {
    std::vector<int> axes;
    for (int k = x.rank(); k < 4; ++k) axes.push_back(k - x.rank());
    return axes.empty() ? x : ir::unsqueeze(p, x, axes);
  };
  AttentionCore a;
  a.q = four(ctx.in(0));
  a.k = four(ctx.in(1));
  a.v = four(ctx.in(2));
  if (ctx.attr_int("plain_keys", 0) == 0) a.k = ir::permute(p, a.k, std::vector<int>{0, 1, 3, 2});
  a.scale = ctx.attr_float("scale", 1);
  a.zero_undefined_rows = ctx.attr_int("zero_undefined_rows", 0) != 0;
  if (ctx.has(3)) {
    // Where the mask may have 1 the kernel repeats it; all else has to be equal, which a run may have to say.
    TensorBox mask = four(ctx.in(3));
    SymInts sizes = {a.q.sizes()[0], a.q.sizes()[1], a.q.sizes()[2], a.k.sizes()[2]};
    for (int d = 0; d < 4; ++d)
      if (mask.sizes()[d].is(1)) sizes[d] = 1;
    a.mask = ir::expand(p, mask, sizes);
  }
  TensorBox y = attend_fused(ctx, a);
  return {ctx.rank(0) == 3 ? ir::squeeze(p, y, std::vector<int>{0}) : y};
}

} // namespace

void register_attention(Registry& r) {
  r.add("FusedAttention", since(1), fused_attention, "tensorbox");
  r.narrow(Narrow::follows, {"FusedAttention"}, "tensorbox");
}

} // namespace tbx::lowering
