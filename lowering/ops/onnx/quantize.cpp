// QuantizeLinear, DequantizeLinear (per tensor, per axis, blocked) and DynamicQuantizeLinear.
#include <algorithm>
#include <numeric>

#include "lowering/ops/families.h"
#include "lowering/ops/onnx/cast.h"
#include "lowering/ops/products.h"
#include "lowering/realize_policy.h"

namespace tbx::lowering {
namespace {

/// A scale or zero point shown in the shape of `x`.
TensorBox spread(OpContext& ctx, const TensorBox& scale, const TensorBox& x) {
  SymInt n = ir::product(scale.sizes());
  if (scale.rank() == 0) return scale;
  if (n.is(1)) return ir::reshape(ctx.program, scale, {});
  // The axis of a vector is not named.
  int axis = x.rank() == 1 ? 0 : ctx.axis(ctx.attr_int("axis", 1), x.rank());
  int64_t block = ctx.attr_int("block_size", 0);
  TBX_MODEL(block >= 0, "block_size is {}", block);
  if (block == 0) {
    TBX_MODEL(scale.rank() == 1, "scale of rank {} without block_size", scale.rank());
    std::vector<int> fresh(x.rank() - 1 - axis);
    std::iota(fresh.begin(), fresh.end(), 1);
    return ir::unsqueeze(ctx.program, scale, fresh);
  }
  TBX_MODEL(scale.rank() == x.rank(), "scale of rank {} for blocks of a tensor of rank {}", scale.rank(),
            x.rank());
  SymInt blocks = ir::ceildiv(x.sizes()[axis], block);
  if (!ir::provably_equal(blocks, scale.sizes()[axis])) {
    TBX_MODEL(!(blocks.is_constant() && scale.sizes()[axis].is_constant()),
              "{} scales for {} blocks of {} elements", scale.sizes()[axis].constant(), blocks.constant(),
              block);
    ctx.program.add_check(blocks - scale.sizes()[axis], true,
                          fmt::format("{} scales for {} blocks of {} elements",
                                      ir::to_string(scale.sizes()[axis]), ir::to_string(blocks), block));
  }
  SymInts at = loop_vars(ctx.c, x.rank());
  at[axis] = ir::floordiv(at[axis], block);
  SymInts sizes = scale.sizes();
  sizes[axis] = x.sizes()[axis];
  return scale.view(ctx.c, sizes, at);
}

/// Smallest and largest integer of a type.
struct Range {
  double low, high;
};
Range range_of(DType type) {
  int bits = bits_of(type);
  double span = static_cast<double>(int64_t{1} << bits);
  return is_signed(type) ? Range{-span / 2, span / 2 - 1} : Range{0, span - 1};
}

} // namespace

Expr quantized(Expr quotient, Expr zero, DType to) {
  if (is_low_precision_float(to) && bits_of(to) <= 8)
    return cast_element(zero ? ir::add(quotient, to_compute(zero, quotient->dtype)) : quotient, to);
  TBX_MODEL(is_integer(to) && bits_of(to) <= 16,
            "cannot quantise to {}, only to integers of at most 16 bits and floats of at most 8",
            name_of(to));
  Expr q = ir::unary(Op::round_even, quotient);
  // Of a sum with 0 only the sign of a zero would be another, which integers do not have.
  if (zero && !(zero->op == Op::constant && zero->as_double() == 0))
    q = ir::add(q, to_compute(zero, q->dtype));
  Range range = range_of(to);
  q = ir::binary(Op::min, ir::binary(Op::max, q, number(q, range.low)), number(q, range.high));
  return to_compute(q, to);
}

namespace {

std::vector<LoweredValue> lower_quantize(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TensorBox scale = spread(ctx, ctx.in(1), x);
  bool has_zero = ctx.has(2);
  DType to = ctx.attr_dtype("output_dtype", has_zero ? ctx.dtype(2) : DType::u8);
  DType precision = ctx.attr_dtype("precision", scale.dtype());
  if (!is_float(precision) || bits_of(precision) < 16) precision = DType::f32; // no type to divide in
  bool saturate = ctx.attr_int("saturate", 1) != 0;
  std::vector<TensorBox> xs = {x, scale};
  if (has_zero) xs.push_back(spread(ctx, ctx.in(2), x));
  TensorBox y = map(ctx, to, xs, [&](std::span<const Expr> v) {
    DType type = compute_type(precision);
    Expr quotient =
        ir::div(rounded(to_compute(v[0], type), precision), rounded(to_compute(v[1], type), precision));
    quotient = rounded(quotient, precision);
    Expr zero = has_zero ? v[2] : nullptr;
    if (is_integer(to)) return quantized(quotient, zero, to);
    if (zero) quotient = ir::add(quotient, to_compute(zero, type));
    return cast_element(quotient, to, saturate);
  });
  if (is_byte(to)) realize_bytes_of_product(ctx.program, y);
  return {y};
}

std::vector<LoweredValue> lower_dequantize(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TensorBox scale = spread(ctx, ctx.in(1), x);
  DType to = ctx.attr_dtype("output_dtype", scale.dtype());
  std::vector<TensorBox> xs = {x, scale};
  if (ctx.has(2)) xs.push_back(spread(ctx, ctx.in(2), x));
  return {map(ctx, to, xs, [&](std::span<const Expr> v) {
    Expr value = v[0];
    if (v.size() > 2) { // differences of 8- and 16-bit integers need more bits
      DType wide = is_float(value->dtype) ? DType::f32 : DType::i32;
      value = ir::sub(to_compute(value, wide), to_compute(v[2], wide));
    }
    DType type = v[1]->dtype;
    return ir::mul(to_compute(value, type), v[1]);
  })};
}

/// The smallest or largest element of `x` (`op`): of rows first, which the kernel that computes them can look
/// at on its way, then of all of them in one go, since they are few beside the elements. Rows are the last
/// dimensions; where there are few or only short ones, the reducer decides.
TensorBox extreme(OpContext& ctx, ReduceOp op, const TensorBox& x) {
  constexpr int64_t kLeastRow = 128, kLeastRows = 8;
  const SymInts& sizes = x.sizes();
  int rows = x.rank();
  SymInt length = 1;
  while (rows > 0 && ir::size_hint(length) < kLeastRow) length = length * sizes[--rows];
  SymInts outer(sizes.begin(), sizes.begin() + rows);
  if (ir::size_hint(length) < kLeastRow || ir::size_hint(ir::product(outer)) < kLeastRows) {
    AxisReducer reduce(ctx, sizes, axes_from(0, x.rank()));
    return reduce.drop(reduce(op, DType::f32, x));
  }
  AxisReducer of_rows(ctx, sizes, axes_from(rows, x.rank()));
  TensorBox partial = of_rows.drop(of_rows(op, DType::f32, x));
  realize(ctx, partial, op == ReduceOp::min ? "smallest of each row" : "largest of each row");
  SymInts at;
  for (int k = 0; k < rows; ++k) at.push_back(ctx.c.rvar(k));
  return ir::make_reduction(ctx.program, op, DType::f32, {}, outer, partial.load(ctx.program, at));
}

/// u8 quantisation whose scale and zero point come from the data's range, which is widened to contain 0.
std::vector<LoweredValue> lower_dynamic_quantize(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  shared(ctx, x, 3);
  TensorBox least = extreme(ctx, ReduceOp::min, x);
  TensorBox greatest = extreme(ctx, ReduceOp::max, x);
  auto zero_in = [](Op op) { return [op](Expr e) { return ir::binary(op, e, number(e, 0)); }; };
  least = map(ctx, DType::f32, least, zero_in(Op::min));
  greatest = map(ctx, DType::f32, greatest, zero_in(Op::max));
  TensorBox scale = map(ctx, DType::f32, greatest, least,
                        [](Expr hi, Expr lo) { return ir::div(ir::sub(hi, lo), number(hi, 255)); });
  realize(ctx, scale, "scale of a dynamic quantisation");
  TensorBox zero = map(ctx, DType::u8, least, scale, [](Expr lo, Expr s) {
    Expr q = ir::unary(Op::round_even, ir::div(ir::sub(number(lo, 0), lo), s));
    q = ir::binary(Op::min, ir::binary(Op::max, q, number(q, 0)), number(q, 255));
    return ir::where(ir::unary(Op::is_nan, q), number(q, 0), q);
  });
  realize(ctx, zero, "zero point of a dynamic quantisation");
  const TensorBox xs[] = {x, scale, zero};
  TensorBox y = map(ctx, DType::u8, xs,
                    [](std::span<const Expr> v) { return quantized(ir::div(v[0], v[1]), v[2], DType::u8); });
  return {y, scale, zero};
}

} // namespace

void register_quantize(Registry& r) {
  r.add("QuantizeLinear", since(10), lower_quantize);
  r.add("DequantizeLinear", since(10), lower_dequantize);
  r.add("DynamicQuantizeLinear", since(11), lower_dynamic_quantize);
  r.add("QuantizeLinear", since(1), lower_quantize, "com.microsoft");
  r.add("DequantizeLinear", since(1), lower_dequantize, "com.microsoft");
  r.type_from(1, {"DequantizeLinear"}, "com.microsoft");
}

} // namespace tbx::lowering
