#include "lowering/ops/channels.h"

namespace tbx::lowering {

TensorBox with_channels_last(OpContext& ctx, const TensorBox& x) {
  std::vector<int> order{0};
  for (int k = 2; k < x.rank(); ++k) order.push_back(k);
  order.push_back(1);
  TensorBox view = ir::permute(ctx.program, x, order);
  TensorBox copy =
      ir::make_pointwise(ctx.program, x.dtype(), view.sizes(),
                         to_compute(view.load(ctx.program, loop_vars(ctx.c, x.rank())), x.dtype()));
  realize(ctx, copy, "channels innermost: each position is read for all of them");
  return copy;
}

TensorBox with_channels_second(OpContext& ctx, const TensorBox& x) {
  std::vector<int> order{0, x.rank() - 1};
  for (int k = 1; k + 1 < x.rank(); ++k) order.push_back(k);
  return ir::permute(ctx.program, x, order);
}

bool channels_last_pays(const TensorBox& x, SymInt reads) {
  SymInt plane = x.sizes()[0];
  for (int k = 2; k < x.rank(); ++k) plane = plane * x.sizes()[k];
  return ir::size_hint(x.sizes()[1]) >= Target::kShortRow && ir::size_hint(reads) >= ir::size_hint(plane);
}

SymInt clamped_index(OpContext& ctx, Expr i, SymInt size) {
  Expr last = ctx.c.index(size - SymInt(1)), zero = ctx.c.constant_int(DType::i64, 0);
  return ctx.c.indirect(ir::binary(Op::min, ir::binary(Op::max, i, zero), last), size, false);
}

} // namespace tbx::lowering
