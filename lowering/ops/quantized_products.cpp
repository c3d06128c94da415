// QLinearMatMul and QLinearConv: exact integer products, then scaled, rounded to even and saturated.
#include "lowering/ops/families.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// The exact product `sum` (i32) as quantised integers: a_scale * b_scale / y_scale of it, plus the zero
/// point (input `zero`) of the result.
TensorBox requantized(OpContext& ctx, const TensorBox& sum, const TensorBox& a_scale,
                      const TensorBox& b_scale, const TensorBox& y_scale, const TensorBox& zero) {
  DType to = zero.dtype();
  const TensorBox xs[] = {sum, a_scale, b_scale, y_scale, zero};
  return map(ctx, to, xs, [to](std::span<const Expr> v) {
    Expr factor = ir::div(ir::mul(v[1], v[2]), v[3]);
    return quantized(ir::mul(to_compute(v[0], factor->dtype), factor), v[4], to);
  });
}

/// A parameter of a matrix: one value, a vector with one entry per row, or already of the matrix's rank.
TensorBox along_rows(OpContext& ctx, int i, int rank) {
  const TensorBox& x = ctx.in(i);
  if (x.rank() == 1 && x.sizes()[0].is(1)) return ir::reshape(ctx.program, x, {});
  return x.rank() == 1 && rank >= 2 ? ir::unsqueeze(ctx.program, x, std::vector<int>{1}) : x;
}

TensorBox along_columns(OpContext& ctx, int i) {
  const TensorBox& x = ctx.in(i);
  return x.rank() == 1 && x.sizes()[0].is(1) ? ir::reshape(ctx.program, x, {}) : x;
}

Values qlinear_matmul(OpContext& ctx) {
  TensorBox sum = matmul_boxes(ctx, shifted(ctx, 0, 2, true), shifted(ctx, 3, 5, false), DType::i32);
  return {requantized(ctx, sum, along_rows(ctx, 1, ctx.rank(0)), along_columns(ctx, 4),
                      along_rows(ctx, 6, ctx.rank(0)), along_rows(ctx, 7, ctx.rank(0)))};
}

/// A parameter of a convolution: one value, or one per output channel, shown along dimension 1.
TensorBox along_channels(OpContext& ctx, int i, int rank) {
  const TensorBox& x = ctx.in(i);
  TBX_MODEL(x.rank() <= 1, "input {} has rank {}, expected a scalar or one value per channel", i, x.rank());
  if (x.rank() == 0) return x;
  return x.sizes()[0].is(1) ? ir::reshape(ctx.program, x, {}) : per_channel(ctx, x, rank);
}

Values qlinear_conv(OpContext& ctx) {
  int rank = ctx.rank(0);
  TensorBox sum = conv_boxes(ctx, without_zero_point(ctx, 0, 2, 1), without_zero_point(ctx, 3, 5, 0),
                             ctx.has(8) ? &ctx.in(8) : nullptr, DType::i32);
  return {requantized(ctx, sum, along_channels(ctx, 1, rank), along_channels(ctx, 4, rank),
                      along_channels(ctx, 6, rank), along_channels(ctx, 7, rank))};
}

} // namespace

void register_quantized_products(Registry& r) {
  r.add("QLinearMatMul", since(10), qlinear_matmul);
  r.add("QLinearConv", since(10), qlinear_conv);
}

} // namespace tbx::lowering
