// QLinearMatMul and QLinearConv: exact integer products, then scaled, rounded to even and saturated.
#include <fmt/format.h>

#include <cstdlib>

#include "lowering/ops/families.h"
#include "lowering/ops/onnx/integer_products.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// The product `sum` (i32, exact, or f32) quantised: `factor` times it, plus the zero point of
/// the result.
TensorBox requantized(OpContext& ctx, const TensorBox& sum, const TensorBox& factor, const TensorBox& zero) {
  DType to = zero.dtype();
  const TensorBox xs[] = {sum, factor, zero};
  TensorBox y = map(ctx, to, xs, [to](std::span<const Expr> v) {
    return quantized(ir::mul(to_compute(v[0], DType::f32), v[1]), v[2], to);
  });
  realize_bytes_of_product(ctx.program, y);
  return y;
}

/// a_scale * b_scale / y_scale of constants, as many as there are of input `b`; undefined where they are
/// none.
TensorBox constant_factor(OpContext& ctx, int a, int b, int y) {
  auto x = ctx.constant(a), w = ctx.constant(b), z = ctx.constant(y);
  auto is_f32 = [](const auto& t) { return t && t->dtype == DType::f32; };
  if (!is_f32(x) || !is_f32(w) || !is_f32(z) || x->numel() != 1 || z->numel() != 1 || w->dims.size() > 1)
    return {};
  const bool single = w->numel() == 1;
  Tensor t = Tensor::make(DType::f32, single ? std::vector<int64_t>{} : w->dims);
  for (size_t i = 0; i < w->as<float>().size(); ++i)
    t.as_mutable<float>()[i] = x->as<float>()[0] * w->as<float>()[i] / z->as<float>()[0];
  return ir::make_constant(ctx.program, std::move(t));
}

/// The same of any three boxes.
TensorBox factor_of(OpContext& ctx, const TensorBox& a, const TensorBox& b, const TensorBox& y) {
  const TensorBox xs[] = {a, b, y};
  return map(ctx, DType::f32, xs, [](std::span<const Expr> v) { return ir::div(ir::mul(v[0], v[1]), v[2]); });
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

TensorBox less_zero_point(OpContext& ctx, const TensorBox& x, const TensorBox& zero) {
  const TensorBox xs[] = {convert(ctx, x, DType::f32), convert(ctx, zero, DType::f32)};
  return map(ctx, DType::f32, xs, [](std::span<const Expr> v) { return ir::sub(v[0], v[1]); });
}

Values qlinear_matmul(OpContext& ctx) {
  const int rank = ctx.rank(0);
  const bool floats = is_float(ctx.dtype(0)) || is_float(ctx.dtype(3)); // of 8 bits
  TensorBox sum = floats ? matmul_boxes(ctx, less_zero_point(ctx, ctx.in(0), along_rows(ctx, 2, rank)),
                                        less_zero_point(ctx, ctx.in(3), along_columns(ctx, 5)), DType::f32)
                         : integer_matmul(ctx, 0, 2, 3, 5);
  TensorBox factor = constant_factor(ctx, 1, 4, 6);
  if (!factor.defined())
    factor = factor_of(ctx, along_rows(ctx, 1, rank), along_columns(ctx, 4), along_rows(ctx, 6, rank));
  return {requantized(ctx, sum, factor, along_rows(ctx, 7, rank))};
}

/// A parameter of a convolution: one value, or one per output channel, shown along dimension 1.
TensorBox along_channels(OpContext& ctx, int i, int rank) {
  const TensorBox& x = ctx.in(i);
  TBX_MODEL(x.rank() <= 1, "input {} has rank {}, expected a scalar or one value per channel", i, x.rank());
  if (x.rank() == 0) return x;
  return x.sizes()[0].is(1) ? ir::reshape(ctx.program, x, {}) : per_channel(ctx, x, rank);
}

/// No sum of the convolution with constant weights and this bias can pass 2^24: f32 adds them exactly.
bool is_small(OpContext& ctx) {
  auto w = ctx.constant(3), w_zero = ctx.has(5) ? ctx.constant(5) : nullptr, bias = ctx.constant(8);
  if (!w || !bias || (ctx.has(5) && !w_zero) || w->dims.empty() || w->dims[0] == 0 ||
      bias->numel() != w->dims[0] || bits_of(w->dtype) > 8 || bits_of(bias->dtype) > 32)
    return false;
  const int64_t channels = w->dims[0];
  if (w_zero && (bits_of(w_zero->dtype) > 8 || (w_zero->numel() != 1 && w_zero->numel() != channels)))
    return false;
  const int64_t each = w->numel() / channels;
  const std::vector<int64_t> values = to_ints(*w), biases = to_ints(*bias),
                             zeros = w_zero ? to_ints(*w_zero) : std::vector<int64_t>{0};
  for (int64_t c = 0; c < channels; ++c) {
    int64_t sum = std::abs(biases[c]), zero = zeros[zeros.size() > 1 ? c : 0];
    for (int64_t k = 0; k < each; ++k) sum += 255 * std::abs(values[c * each + k] - zero);
    if (sum > (1 << 24)) return false;
  }
  return true;
}

Values qlinear_conv(OpContext& ctx) {
  int rank = ctx.rank(0);
  TensorBox sum = integer_conv(ctx, 0, 2, 3, 5);
  if (ctx.has(8)) {
    const DType type = is_small(ctx) ? DType::f32 : DType::i32;
    TensorBox bias = per_channel(ctx, ctx.in(8), rank);
    ctx.program.add_check(ctx.sizes(8)[0] - sum.sizes()[1], true,
                          fmt::format("the bias has {} elements, the result {} channels",
                                      ir::to_string(ctx.sizes(8)[0]), ir::to_string(sum.sizes()[1])));
    if (auto t = ctx.constant(8); t && type == DType::f32) {
      Tensor real = Tensor::make(DType::f32, {t->numel()});
      for (int64_t i = 0; i < t->numel(); ++i)
        real.as_mutable<float>()[i] = static_cast<float>(element_as_int(*t, i));
      bias = per_channel(ctx, ir::make_constant(ctx.program, std::move(real)), rank);
    }
    sum = map(ctx, type, sum, bias,
              [&](Expr x, Expr y) { return ir::add(to_compute(x, type), to_compute(y, type)); });
  }
  TensorBox factor = constant_factor(ctx, 1, 4, 6);
  if (!factor.defined())
    factor = factor_of(ctx, along_channels(ctx, 1, rank), along_channels(ctx, 4, rank),
                       along_channels(ctx, 6, rank));
  else if (factor.rank() == 1)
    factor = per_channel(ctx, factor, rank);
  return {requantized(ctx, sum, factor, along_channels(ctx, 7, rank))};
}

} // namespace

void register_quantized_products(Registry& r) {
  r.add("QLinearMatMul", since(10), qlinear_matmul);
  r.add("QLinearConv", since(10), qlinear_conv);
}

} // namespace tbx::lowering
