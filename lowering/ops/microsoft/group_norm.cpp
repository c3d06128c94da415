// com.microsoft GroupNorm and SkipGroupNorm, and the activation behind them.
#include "ir/activations.h"
#include "lowering/ops/attention_core.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

/// Channels to dimension 1, or back to the last one.
TensorBox move_channels(OpContext& ctx, const TensorBox& x, bool to_front) {
  std::vector<int> order{0};
  for (int d = 1; d < x.rank(); ++d) order.push_back(d);
  if (to_front) {
    order.insert(order.begin() + 1, x.rank() - 1);
    order.pop_back();
  } else {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return ir::permute(ctx.program, x, order);
}

/// GroupNorm; with `skip` of x + skip + bias, which is the second output.
LowerFn group_norm(bool skip) {
  return [=](OpContext& ctx) -> std::vector<LoweredValue> {
    TensorBox x = ctx.in(0);
    TBX_MODEL(x.rank() >= 2, "data of rank {}", x.rank());
    TBX_MODEL(is_float(x.dtype()), "data is of type {}", name_of(x.dtype()));
    const int64_t activation = ctx.required_int("activation");
    TBX_MODEL(activation == 0 || activation == 1, "activation is {}, expected 0 or 1", activation);
    const bool last = ctx.attr_int("channels_last", 1) != 0;
    const int channel = last ? x.rank() - 1 : 1;
    for (int i : {1, 2, 4}) {
      if (!ctx.has(i) || (i == 4 && !skip)) continue;
      TBX_MODEL(ctx.rank(i) == 1, "input {} has rank {}, expected 1", i, ctx.rank(i));
      require_equal(ctx, ctx.sizes(i)[0], x.sizes()[channel], "numbers of channels");
    }
    if (skip) {
      // The skip is of the shape of x, or has its spatial dimensions as 1 or not at all.
      TensorBox s = ctx.in(3);
      if (s.rank() == 2 && x.rank() > 2) {
        SymInts sizes(x.rank(), 1);
        sizes[0] = s.sizes()[0];
        sizes[channel] = s.sizes()[1];
        s = ir::reshape(ctx.program, s, sizes);
      }
      TBX_MODEL(s.rank() == x.rank(), "skip has rank {}, data {}", s.rank(), x.rank());
      std::vector<TensorBox> terms{x, s};
      if (ctx.has(4)) terms.push_back(last ? ctx.in(4) : per_channel(ctx, ctx.in(4), x.rank()));
      SymInts sizes = x.sizes();
      x = map(ctx, x.dtype(), terms, [](std::span<const Expr> v) {
        Expr e = ir::add(v[0], v[1]);
        return v.size() > 2 ? ir::add(e, v[2]) : e;
      });
      for (int d = 0; d < x.rank(); ++d)
        require_equal(ctx, x.sizes()[d], sizes[d], "shapes of data and skip");
      realize(ctx, x, "sum before a normalisation");
    }
    TensorBox y = convert(ctx, last ? move_channels(ctx, x, true) : x, DType::f32);
    y = lower_as(ctx, "GroupNormalization", 21,
                 {y, convert(ctx, ctx.in(1), DType::f32), convert(ctx, ctx.in(2), DType::f32)},
                 {{"num_groups", ctx.required_int("groups")}, {"epsilon", ctx.attr_float("epsilon", 1e-5f)}})
            .at(0)
            .tensor;
    y = map(ctx, x.dtype(), y, [&](Expr e) { return to_compute(activation ? ir::silu(e) : e, x.dtype()); });
    std::vector<LoweredValue> out = {last ? move_channels(ctx, y, false) : y};
    if (skip) out.push_back(x);
    return out;
  };
}

} // namespace

void register_group_norm(Registry& r) {
  r.add("GroupNorm", since(1), group_norm(false), "com.microsoft");
  r.add("SkipGroupNorm", since(1), group_norm(true), "com.microsoft");
  r.type_from(0, {"GroupNorm", "SkipGroupNorm"}, "com.microsoft");
}

} // namespace tbx::lowering
