// DeformConv: a convolution whose taps read at displaced positions: the sampled columns go through one matrix
// product per group.
#include "lowering/ops/channels.h"
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Two spatial dimensions.
struct DeformOptions {
  std::vector<int64_t> kernel, strides, dilations, pads;
  int64_t group, offset_group;

  int64_t taps() const { return kernel[0] * kernel[1]; }
  /// Of a result, along dimension `k` of an image of this size.
  SymInt results(int k, SymInt size) const {
    SymInt room = size + SymInt(pads[k] + pads[2 + k] - dilations[k] * (kernel[k] - 1) - 1);
    return ir::max(ir::floordiv(room, strides[k]) + SymInt(1), 0);
  }
};

DeformOptions options_of(OpContext& ctx, const TensorBox& w) {
  auto attribute = [&](const char* name, std::vector<int64_t> otherwise, int64_t least) {
    size_t n = otherwise.size();
    std::vector<int64_t> v = ctx.attr_ints(name, std::move(otherwise));
    TBX_MODEL(v.size() == n, "{} has {} entries, expected {}", name, v.size(), n);
    for (int64_t e : v) TBX_MODEL(e >= least && e < (int64_t{1} << 31), "{} has the value {}", name, e);
    return v;
  };
  DeformOptions o;
  for (int k = 2; k < 4; ++k) {
    auto size = w.sizes()[k].as_constant();
    if (!size) ask_for_sizes("the kernel size is not known while compiling");
    o.kernel.push_back(*size);
  }
  TBX_MODEL(attribute("kernel_shape", o.kernel, 1) == o.kernel, "kernel_shape is not that of W");
  o.strides = attribute("strides", {1, 1}, 1);
  o.dilations = attribute("dilations", {1, 1}, 1);
  o.pads = attribute("pads", {0, 0, 0, 0}, 0);
  o.group = ctx.attr_int("group", 1);
  o.offset_group = ctx.attr_int("offset_group", 1);
  TBX_MODEL(o.group > 0 && o.offset_group > 0, "group is {}, offset_group is {}", o.group, o.offset_group);
  return o;
}

void check_shape(OpContext& ctx, const TensorBox& t, const SymInts& want, const char* what) {
  TBX_MODEL(t.rank() == 4, "{} has rank {}, expected 4", what, t.rank());
  for (int k = 0; k < 4; ++k)
    ctx.program.add_check(t.sizes()[k] - want[k], true,
                          fmt::format("DeformConv: {} has a wrong size along dimension {}", what, k));
}

/// The two neighbours of a displaced position along one dimension, as whole numbers that may lie outside.
struct Near {
  Expr index[2], weight[2], is_inside[2];
};

Near near_position(OpContext& ctx, Expr position, SymInt size) {
  auto whole = [&](int64_t v) { return ctx.c.constant_int(DType::i64, v); };
  Expr low = ir::unary(Op::floor, position), fraction = ir::sub(position, low),
       first = ctx.c.cast(low, DType::i64);
  Near n;
  n.weight[0] = ir::sub(number(fraction, 1), fraction);
  n.weight[1] = fraction;
  for (int j = 0; j < 2; ++j) {
    n.index[j] = ir::add(first, whole(j));
    n.is_inside[j] = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, n.index[j], whole(0)),
                                ir::binary(Op::less, n.index[j], ctx.c.index(size)));
  }
  return n;
}

/// What each tap reads, between four pixels, times its mask: [N, C, taps, results...].
TensorBox sampled_columns(OpContext& ctx, const DeformOptions& o, const SymInts& results) {
  const TensorBox &x = ctx.in(0), &offset = ctx.in(2);
  ir::Program& p = ctx.program;
  const DType type = compute_type(x.dtype());
  const SymInt channels = x.sizes()[1], taps = o.taps();
  const SymInts sizes{x.sizes()[0], channels, taps, results[0], results[1]}, at = loop_vars(ctx.c, 5);
  const SymInt set = ir::floordiv(at[1] * SymInt(o.offset_group), channels);
  realize_if_repeated(p, x, sizes);
  realize_if_repeated(p, offset, sizes);
  Near near[2];
  for (int k = 0; k < 2; ++k) {
    SymInt tap = k == 0 ? ir::floordiv(at[2], o.kernel[1]) : ir::mod(at[2], o.kernel[1]);
    const SymInt place[] = {at[0], (set * taps + at[2]) * SymInt(2) + SymInt(k), at[3], at[4]};
    Expr shift = to_compute(offset.load(p, place), type);
    SymInt grid = at[3 + k] * SymInt(o.strides[k]) + tap * SymInt(o.dilations[k]) - SymInt(o.pads[k]);
    near[k] = near_position(ctx, ir::add(to_compute(ctx.c.index(grid), type), shift), x.sizes()[2 + k]);
  }
  Expr value = nullptr;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      Expr in = ir::binary(Op::logical_and, near[0].is_inside[i], near[1].is_inside[j]);
      const SymInt place[] = {at[0], at[1], clamped_index(ctx, near[0].index[i], x.sizes()[2]),
                              clamped_index(ctx, near[1].index[j], x.sizes()[3])};
      Expr v = to_compute(x.load(p, place), type);
      Expr term = ir::mul(ir::mul(near[0].weight[i], near[1].weight[j]), ir::where(in, v, number(v, 0)));
      value = value ? ir::add(value, term) : term;
    }
  if (ctx.has(4)) {
    realize_if_repeated(p, ctx.in(4), sizes);
    const SymInt place[] = {at[0], set * taps + at[2], at[3], at[4]};
    value = ir::mul(value, to_compute(ctx.in(4).load(p, place), type));
  }
  return ir::make_pointwise(p, x.dtype(), sizes, to_compute(value, x.dtype()));
}

/// X [N, C, H, W], W [filters, C / group, ...], offset, B [filters] and mask, the last two optional.
Values deform_conv(OpContext& ctx) {
  const TensorBox &x = ctx.in(0), &w = ctx.in(1), &offset = ctx.in(2);
  TBX_MODEL(x.rank() == 4 && w.rank() == 4 && offset.rank() == 4,
            "X, W and offset have ranks {}, {} and {}, expected 4 (two spatial dimensions)", x.rank(),
            w.rank(), offset.rank());
  const DeformOptions o = options_of(ctx, w);
  const SymInt batch = x.sizes()[0], channels = x.sizes()[1], per_group = w.sizes()[1],
               filters = w.sizes()[0];
  ir::Program& p = ctx.program;
  p.add_check(channels - per_group * SymInt(o.group), true, "DeformConv: channels of X and W do not match");
  p.add_check(ir::mod(channels, o.offset_group), true,
              "DeformConv: channels are no multiple of offset_group");
  p.add_check(ir::mod(filters, o.group), true, "DeformConv: filters are no multiple of group");
  const SymInts out{o.results(0, x.sizes()[2]), o.results(1, x.sizes()[3])};
  const int64_t shown = o.offset_group * o.taps();
  check_shape(ctx, offset, {batch, SymInt(2 * shown), out[0], out[1]}, "offset");
  if (ctx.has(4)) check_shape(ctx, ctx.in(4), {batch, SymInt(shown), out[0], out[1]}, "mask");

  TensorBox columns = sampled_columns(ctx, o, out);
  realize(ctx, columns, "operand of a matrix product");
  const SymInt inner = per_group * SymInt(o.taps()), group = o.group;
  columns = ir::reshape(p, columns, {batch, group, inner, out[0] * out[1]});
  TensorBox weights = ir::reshape(p, w, {SymInt(1), group, ir::floordiv(filters, o.group), inner});
  TensorBox y = matrix_product(ctx, weights, columns, nullptr, 1, 1, x.dtype());
  y = ir::reshape(p, y, {batch, filters, out[0], out[1]});
  if (!ctx.has(3)) return {y};
  TBX_MODEL(ctx.rank(3) == 1, "B has rank {}, expected 1", ctx.rank(3));
  p.add_check(ctx.sizes(3)[0] - filters, true, "DeformConv: B has another number of filters");
  return {map(ctx, x.dtype(), y, per_channel(ctx, ctx.in(3), 4), ir::add)};
}

} // namespace

void register_deform_conv(Registry& r) { r.add("DeformConv", since(19), deform_conv); }

} // namespace tbx::lowering
