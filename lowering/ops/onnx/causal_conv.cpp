// CausalConvWithState: a depthwise convolution along time that carries the last positions from call to call.
#include <limits>
#include <numeric>

#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

/// What the com.microsoft form has beyond that of ai.onnx.
struct Form {
  int64_t dilation = 1, window = 0;
  bool channels_last = false;
};

Form form_of(OpContext& ctx) {
  Form f;
  if (ctx.node.domain.empty()) return f;
  const int64_t ndim = ctx.attr_int("ndim", 1);
  TBX_MODEL(ndim >= 1 && ndim <= 3, "ndim is {}, expected 1 to 3", ndim);
  if (ndim != 1) throw_unsupported("ndim {}: only sequences (ndim 1) are convolved", ndim);
  f.dilation = ctx.attr_int("dilation", 1);
  TBX_MODEL(f.dilation >= 1 && f.dilation <= std::numeric_limits<int32_t>::max(), "dilation is {}",
            f.dilation);
  f.window = ctx.attr_int("state_window", 0);
  TBX_MODEL(f.window >= 0 && f.window <= 8, "state_window is {}, expected 0 to 8", f.window);
  f.channels_last = ctx.attr_int("channels_last", 0) != 0;
  return f;
}

/// The order of `rank` dimensions of which two change places.
std::vector<int> with_swapped(int rank, int a, int b) {
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[a], order[b]);
  return order;
}

/// [..., B, L, channels...] as [..., B, C, L], from dimension `first` on.
TensorBox channels_second(ir::Program& p, const TensorBox& t, int first) {
  SymInts sizes(t.sizes().begin(), t.sizes().begin() + first + 2);
  sizes.push_back(ir::product(std::span<const SymInt>(t.sizes()).subspan(first + 2)));
  return ir::permute(p, ir::reshape(p, t, sizes),
                     with_swapped(static_cast<int>(sizes.size()), first + 1, first + 2));
}

/// [..., C, L] as [..., L, channels...].
TensorBox channels_behind(ir::Program& p, const TensorBox& t, std::span<const SymInt> channels) {
  TensorBox turned = ir::permute(p, t, with_swapped(t.rank(), t.rank() - 2, t.rank() - 1));
  SymInts sizes(turned.sizes().begin(), turned.sizes().end() - 1);
  sizes.insert(sizes.end(), channels.begin(), channels.end());
  return ir::reshape(p, turned, sizes);
}

/// What came before, of the shape `want`: [B, C, carried].
TensorBox past_of(OpContext& ctx, const Form& f, const SymInts& want, DType dtype) {
  if (!ctx.has(3)) return full(ctx, dtype, want, 0);
  ir::Program& p = ctx.program;
  auto check = [&](SymInt difference) {
    p.add_check(difference, true, "CausalConvWithState: past_state has another shape");
  };
  const SymInts given = ctx.sizes(0);
  const int rank = ctx.rank(0), lead = f.window ? 1 : 0;
  TensorBox past = ctx.in(3);
  TBX_MODEL(past.rank() == rank + lead, "past_state has rank {}, expected {}", past.rank(), rank + lead);
  if (f.channels_last) {
    for (int d = 2; d < rank; ++d) check(past.sizes()[lead + d] - given[d]); // before they are joined
    past = channels_second(p, past, lead);
  }
  if (f.window) {
    check(past.sizes()[0] - SymInt(f.window));
    past = ir::squeeze(p, ir::slice(p, past, 0, f.window - 1, 1, 1), std::vector<int>{0});
  }
  for (int k = 0; k < 3; ++k) check(past.sizes()[k] - want[k]);
  return past;
}

/// The states after each of the last positions, [window, B, C, carried]; the last slot holds that after all,
/// whatever came. `padded`: the past and `length` positions behind it.
TensorBox states_of_window(OpContext& ctx, int64_t window, const TensorBox& padded, const SymInts& state,
                           SymInt length) {
  SymInts sizes{window};
  sizes.insert(sizes.end(), state.begin(), state.end());
  return generate(ctx, padded.dtype(), sizes, [&](std::span<const SymInt> at) {
    const SymInt next = length - SymInt(window) + at[0] + SymInt(1); // behind the slot's position
    const SymInt source[] = {at[1], at[2], ir::max(next, 0) + at[3]};
    Expr there = ir::binary(
        Op::logical_or, ir::binary(Op::greater, ctx.c.index(next), ctx.c.constant_int(DType::i64, 0)),
        ir::binary(Op::equal, ctx.c.index(at[0]), ctx.c.constant_int(DType::i64, window - 1)));
    Expr e = padded.load(ctx.program, source);
    return ir::where(there, e, number(e, 0));
  });
}

/// The sum over the taps, and the bias, rounded as the result is: [B, C, L].
Expr convolved(OpContext& ctx, const Form& f, const TensorBox& padded, const SymInts& sizes) {
  ir::Program& p = ctx.program;
  const TensorBox& w = ctx.in(1);
  const SymInt c = ctx.c.var(1),
               from[] = {ctx.c.var(0), c, ctx.c.var(2) + ctx.c.rvar(0) * SymInt(f.dilation)},
               tap[] = {c, 0, ctx.c.rvar(0)};
  const DType type = compute_type(padded.dtype());
  Expr product = ir::mul(to_compute(padded.load(p, from), type), to_compute(w.load(p, tap), type));
  TensorBox sum = ir::make_reduction(p, ReduceOp::sum, type, sizes, {w.sizes()[2]}, product);
  Expr y = sum.load(p, loop_vars(ctx.c, 3));
  if (ctx.has(2)) {
    TBX_MODEL(ctx.rank(2) == 1, "bias has rank {}, expected 1", ctx.rank(2));
    p.add_check(ctx.sizes(2)[0] - sizes[1], true, "CausalConvWithState: bias has another number of channels");
    y = ir::add(y, to_compute(ctx.in(2).load(p, {&c, 1}), type));
  }
  return rounded(y, padded.dtype());
}

/// input [B, C, L], weight [C, 1, k], past [B, C, (k - 1) * dilation] -> output [B, C, L], present as past.
/// Channels last: input and output [B, L, ...], states [B, (k - 1) * dilation, ...]. With a window the states
/// have a leading dimension: those after each of the last positions.
std::vector<LoweredValue> causal_conv(OpContext& ctx) {
  const Form f = form_of(ctx);
  ir::Program& p = ctx.program;
  const TensorBox& w = ctx.in(1);
  const int rank = ctx.rank(0);
  TBX_MODEL(f.channels_last ? rank >= 3 && w.rank() == 3 : rank == 3 && w.rank() == 3,
            "input and weight have ranks {} and {}, expected {}3", rank, w.rank(),
            f.channels_last ? "at least " : "");
  const std::string activation = ctx.attr_string("activation", "none");
  TBX_MODEL(activation == "none" || activation == "silu" || activation == "swish", "unknown activation '{}'",
            activation);
  const TensorBox x = f.channels_last ? channels_second(p, ctx.in(0), 0) : ctx.in(0);
  const SymInt batch = x.sizes()[0], channels = x.sizes()[1], length = x.sizes()[2], kernel = w.sizes()[2];
  p.add_check(w.sizes()[0] - channels, true, "CausalConvWithState: weight has another number of channels");
  p.add_check(w.sizes()[1] - SymInt(1), true, "CausalConvWithState: dimension 1 of weight is not 1");
  p.add_check(kernel - SymInt(1), false, "CausalConvWithState: weight has no positions");
  const SymInt carried = ir::max(kernel - SymInt(1), 0) * SymInt(f.dilation);
  const SymInts state{batch, channels, carried};
  const TensorBox past = past_of(ctx, f, state, x.dtype());
  const TensorBox padded = carried.is(0) ? x : concatenate(ctx, {past, x}, 2);
  realize(ctx, padded, "read at every position of the kernel");
  Expr y = convolved(ctx, f, padded, x.sizes());
  if (activation != "none") y = ir::mul(y, ir::unary(Op::sigmoid, y));
  TensorBox present = ir::slice(p, padded, 2, length, 1, carried);
  if (f.window) present = states_of_window(ctx, f.window, padded, state, length);
  TensorBox out = ir::make_pointwise(p, x.dtype(), x.sizes(), to_compute(y, x.dtype()));
  if (!f.channels_last) return {out, present};
  const SymInts given = ctx.sizes(0);
  const std::span<const SymInt> as_given = std::span(given).subspan(2);
  return {channels_behind(p, out, as_given), channels_behind(p, present, as_given)};
}

} // namespace

void register_causal_conv(Registry& r) {
  r.add("CausalConvWithState", since(27), causal_conv);
  r.add("CausalConvWithState", since(1), causal_conv, "com.microsoft");
  r.mark(Trait::by_body, {"CausalConvWithState"});
  r.type_from(0, {"CausalConvWithState"}, "com.microsoft");
}

} // namespace tbx::lowering
