// CausalConvWithState: a depthwise convolution along time that carries the last positions from call to call.
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

/// input [B, C, L], weight [C, 1, k], past [B, C, k - 1] -> output [B, C, L], present [B, C, k - 1]
std::vector<LoweredValue> causal_conv(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &w = ctx.in(1);
  TBX_MODEL(x.rank() == 3 && w.rank() == 3, "input and weight have ranks {} and {}, expected 3", x.rank(),
            w.rank());
  const std::string activation = ctx.attr_string("activation", "none");
  TBX_MODEL(activation == "none" || activation == "silu" || activation == "swish", "unknown activation '{}'",
            activation);
  ir::Program& p = ctx.program;
  SymInt batch = x.sizes()[0], channels = x.sizes()[1], length = x.sizes()[2], kernel = w.sizes()[2];
  p.add_check(w.sizes()[0] - channels, true, "CausalConvWithState: weight has another number of channels");
  p.add_check(w.sizes()[1] - SymInt(1), true, "CausalConvWithState: dimension 1 of weight is not 1");
  p.add_check(kernel - SymInt(1), false, "CausalConvWithState: weight has no positions");
  SymInt carried = ir::max(kernel - SymInt(1), 0);
  TensorBox past;
  if (ctx.has(3)) {
    past = ctx.in(3);
    TBX_MODEL(past.rank() == 3, "past_state has rank {}, expected 3", past.rank());
    const SymInt want[] = {batch, channels, carried};
    for (int k = 0; k < 3; ++k)
      p.add_check(past.sizes()[k] - want[k], true, "CausalConvWithState: past_state has another shape");
  } else {
    past = full(ctx, x.dtype(), {batch, channels, carried}, 0);
  }
  TensorBox padded = carried.is(0) ? x : concatenate(ctx, {past, x}, 2);
  realize(ctx, padded, "read at every position of the kernel");
  const SymInt c = ctx.c.var(1), from[] = {ctx.c.var(0), c, ctx.c.var(2) + ctx.c.rvar(0)},
               tap[] = {c, 0, ctx.c.rvar(0)};
  const DType type = compute_type(x.dtype());
  Expr product = ir::mul(to_compute(padded.load(p, from), type), to_compute(w.load(p, tap), type));
  TensorBox sum = ir::make_reduction(p, ReduceOp::sum, type, x.sizes(), {kernel}, product);
  Expr y = sum.load(p, loop_vars(ctx.c, 3));
  if (ctx.has(2)) {
    TBX_MODEL(ctx.rank(2) == 1, "bias has rank {}, expected 1", ctx.rank(2));
    p.add_check(ctx.sizes(2)[0] - channels, true, "CausalConvWithState: bias has another number of channels");
    y = ir::add(y, to_compute(ctx.in(2).load(p, {&c, 1}), type));
  }
  y = rounded(y, x.dtype());
  if (activation != "none") y = ir::mul(y, ir::unary(Op::sigmoid, y));
  return {ir::make_pointwise(p, x.dtype(), x.sizes(), to_compute(y, x.dtype())),
          ir::slice(p, padded, 2, length, 1, carried)};
}

} // namespace

void register_causal_conv(Registry& r) { r.add("CausalConvWithState", since(27), causal_conv); }

} // namespace tbx::lowering
