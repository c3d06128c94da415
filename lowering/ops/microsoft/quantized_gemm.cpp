// com.microsoft products of 8- and 16-bit integers: exact in i32, then scaled as ONNX Runtime does.
#include <algorithm>

#include "lowering/ops/families.h"
#include "lowering/ops/microsoft/qlinear.h"
#include "lowering/ops/products.h"
#include "lowering/ops/window.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Input `i` of one element as a scalar box, other inputs as they are.
TensorBox scalar_or_vector(OpContext& ctx, int i) {
  const TensorBox& x = ctx.in(i);
  return ir::product(x.sizes()).is(1) ? ir::reshape(ctx.program, x, {}) : x;
}

/// a times b in i32. Zero points may be undefined; that of b may be one per column.
TensorBox integer_product(OpContext& ctx, const TensorBox& a, const TensorBox& b, const TensorBox& a_zero,
                          const TensorBox& b_zero) {
  auto given = [](const TensorBox& x) { return x.defined() ? LoweredValue(x) : LoweredValue(); };
  Values y = lower_as(ctx, "MatMulInteger", 10, {a, b, given(a_zero), given(b_zero)}, {});
  return ctx.box(y[0]);
}

TensorBox transposed(OpContext& ctx, const TensorBox& x, const char* attribute) {
  TBX_MODEL(x.rank() == 2, "an operand has rank {}, expected 2", x.rank());
  return ctx.attr_int(attribute, 0) ? ir::permute(ctx.program, x, std::vector<int>{1, 0}) : x;
}

/// ModelError unless input `i` is absent or of one element.
void check_single(OpContext& ctx, int i, const char* name) {
  if (!ctx.has(i)) return;
  SymInt n = ir::product(ctx.sizes(i));
  TBX_MODEL(!n.is_constant() || n.is(1), "{} has {} elements, expected 1", name, n.constant());
}

/// (A * B + C) * (alpha * a_scale * b_scale / y_scale), quantised where y_scale is given.
Values qgemm(OpContext& ctx) {
  DType a_type = byte_type(ctx, 0);
  byte_type(ctx, 3);
  check_single(ctx, 1, "a_scale");
  check_single(ctx, 2, "a_zero_point");
  check_single(ctx, 7, "y_scale");
  check_single(ctx, 8, "y_zero_point");
  TBX_MODEL(ctx.has(7) == ctx.has(8), "y_scale and y_zero_point are given together or not at all");
  TensorBox a = transposed(ctx, ctx.in(0), "transA"), b = transposed(ctx, ctx.in(3), "transB");
  TensorBox sum = integer_product(ctx, a, b, scalar_or_vector(ctx, 2), scalar_or_vector(ctx, 5));
  if (ctx.has(6)) {
    TBX_MODEL(ctx.dtype(6) == DType::i32 && ctx.rank(6) <= 2,
              "C is {} of rank {}, expected int32 of rank 0 to 2", name_of(ctx.dtype(6)), ctx.rank(6));
    sum = map(ctx, DType::i32, sum, ctx.in(6), ir::add);
  }
  double alpha = ctx.attr_float("alpha", 1);
  std::vector<TensorBox> xs = {sum, scalar_or_vector(ctx, 1), scalar_or_vector(ctx, 4)};
  bool quantize = ctx.has(7);
  if (quantize) xs.insert(xs.end(), {scalar_or_vector(ctx, 7), scalar_or_vector(ctx, 8)});
  DType to = quantize ? ctx.dtype(8) : DType::f32;
  TBX_MODEL(!quantize || to == a_type, "y_zero_point is of type {}, A of type {}", name_of(to),
            name_of(a_type));
  return {map(ctx, to, xs, [&](std::span<const Expr> v) {
    Expr factor = ir::mul(ir::mul(number(v[1], alpha), v[1]), v[2]);
    if (quantize) factor = ir::div(factor, v[3]);
    Expr scaled = ir::mul(to_compute(v[0], DType::f32), factor);
    return quantize ? quantized(scaled, v[4], to) : scaled;
  })};
}

/// f32(sum) * (a_scale * b_scale) + bias
TensorBox scaled_to_float(OpContext& ctx, const TensorBox& sum, const TensorBox& a_scale,
                          const TensorBox& b_scale, int bias) {
  std::vector<TensorBox> xs = {sum, a_scale, b_scale};
  if (ctx.has(bias)) xs.push_back(ctx.in(bias));
  DType type = a_scale.dtype();
  return map(ctx, type, xs, [](std::span<const Expr> v) {
    Expr y = ir::mul(to_compute(v[0], DType::f32), ir::mul(v[1], v[2]));
    return v.size() > 3 ? ir::add(y, v[3]) : y;
  });
}

Values matmul_integer_to_float(OpContext& ctx) {
  byte_type(ctx, 0);
  byte_type(ctx, 1);
  check_single(ctx, 2, "a_scale");
  check_single(ctx, 4, "a_zero_point");
  auto zero = [&](int i) { return ctx.has(i) ? scalar_or_vector(ctx, i) : TensorBox(); };
  TensorBox sum = integer_product(ctx, ctx.in(0), ctx.in(1), zero(4), zero(5));
  return {scaled_to_float(ctx, sum, scalar_or_vector(ctx, 2), scalar_or_vector(ctx, 3), 6)};
}

/// A is quantised to u8 by its own range first.
Values dynamic_quantize_matmul(OpContext& ctx) {
  byte_type(ctx, 1);
  TBX_MODEL(ctx.dtype(0) == DType::f32, "A is of type {}, expected float", name_of(ctx.dtype(0)));
  Values a = lower_as(ctx, "DynamicQuantizeLinear", 11, {ctx.in(0)}, {});
  TensorBox b_zero = ctx.has(3) ? scalar_or_vector(ctx, 3) : TensorBox();
  TensorBox sum = integer_product(ctx, ctx.box(a[0]), ctx.in(1), ctx.box(a[2]), b_zero);
  return {scaled_to_float(ctx, sum, ctx.box(a[1]), scalar_or_vector(ctx, 2), 4)};
}

/// Sums wrap in 32 bits.
Values matmul_integer16(OpContext& ctx) {
  for (int i : {0, 1})
    TBX_MODEL(ctx.dtype(i) == DType::i16 || ctx.dtype(i) == DType::u16,
              "input {} is of type {}, expected int16 or uint16", i, name_of(ctx.dtype(i)));
  bool is_unsigned = ctx.dtype(0) == DType::u16 && ctx.dtype(1) == DType::u16;
  TensorBox y =
      matmul_boxes(ctx, convert(ctx, ctx.in(0), DType::i32), convert(ctx, ctx.in(1), DType::i32), DType::i32);
  return {is_unsigned ? convert(ctx, y, DType::u32) : y};
}

/// With channels_last x and y are [N, spatial..., C]; the weights stay [M, C/group, kernel...].
Values qlinear_conv(OpContext& ctx) {
  Values inputs;
  for (int i = 0; i < ctx.num_inputs(); ++i) inputs.push_back(ctx.value(i));
  bool last = ctx.attr_int("channels_last", 0) != 0;
  if (last) inputs[0] = channels_first(ctx, ctx.in(0));
  Values y = lower_as(ctx, "QLinearConv", 10, std::move(inputs), ctx.node.attributes);
  return {last ? LoweredValue(channels_last(ctx, ctx.box(y[0]))) : y[0]};
}

// --- DynamicQuantizeLSTM

/// Weights [directions, in, 4 * hidden] as the f32 they stand for, [directions, 4 * hidden, in]. Constants
/// are converted here.
LoweredValue real_weights(OpContext& ctx, int i, int scale, int zero) {
  const SymInts sizes = ctx.sizes(i);
  TBX_MODEL(sizes.size() == 3, "input {} has rank {}, expected 3", i, sizes.size());
  byte_type(ctx, i);
  for (int p : {scale, zero}) {
    SymInts s = ctx.sizes(p);
    TBX_MODEL(s.size() == 1 || s.size() == 2, "input {} has rank {}, expected 1 or 2", p, s.size());
    for (size_t d = 0; d < s.size(); ++d)
      ctx.program.add_check(s[d] - sizes[d == 0 ? 0 : 2], true,
                            fmt::format("{}: input {} does not fit the weights", ctx.node.op_type, p));
  }
  auto w = ctx.constant(i), s = ctx.constant(scale), z = ctx.constant(zero);
  if (w && s && z) {
    int64_t in = w->dims[1], columns = w->dims[2];
    Tensor t = Tensor::make(DType::f32, {w->dims[0], columns, in});
    auto at = [&](const Tensor& p, int64_t d, int64_t c) { return p.dims.size() == 1 ? d : d * columns + c; };
    for (int64_t d = 0; d < w->dims[0]; ++d)
      for (int64_t c = 0; c < columns; ++c)
        for (int64_t k = 0; k < in; ++k)
          t.as_mutable<float>()[(d * columns + c) * in + k] =
              static_cast<float>(element_as_double(*s, at(*s, d, c))) *
              static_cast<float>(element_as_int(*w, (d * in + k) * columns + c) -
                                 element_as_int(*z, at(*z, d, c)));
    return std::make_shared<const Tensor>(std::move(t));
  }
  auto spread = [&](int p) {
    return ir::unsqueeze(ctx.program, ctx.in(p),
                         ctx.rank(p) == 1 ? std::vector<int>{1, 2} : std::vector<int>{1});
  };
  const TensorBox xs[] = {ctx.in(i), spread(scale), spread(zero)};
  TensorBox real = map(ctx, DType::f32, xs, [](std::span<const Expr> v) {
    Expr whole = ir::sub(to_compute(v[0], DType::i32), to_compute(v[2], DType::i32));
    return ir::mul(v[1], to_compute(whole, DType::f32));
  });
  return ir::permute(ctx.program, real, std::vector<int>{0, 2, 1});
}

/// The weights are what they stand for, X is rounded to 8 bits by its own range as in ONNX Runtime. The
/// hidden state is not: ONNX Runtime rounds it in each step, by a range over the rows that one thread has.
Values dynamic_quantize_lstm(OpContext& ctx) {
  TBX_MODEL(ctx.dtype(0) == DType::f32, "X is of type {}, expected float", name_of(ctx.dtype(0)));
  Values q = lower_as(ctx, "DynamicQuantizeLinear", 11, {ctx.in(0)}, {});
  const TensorBox xs[] = {ctx.box(q[0]), ctx.box(q[1]), ctx.box(q[2])};
  TensorBox x = map(ctx, DType::f32, xs, [](std::span<const Expr> v) {
    Expr whole = ir::sub(to_compute(v[0], DType::i32), to_compute(v[2], DType::i32));
    return ir::mul(v[1], to_compute(whole, DType::f32));
  });
  Values inputs = {x, real_weights(ctx, 1, 8, 9), real_weights(ctx, 2, 10, 11)};
  for (int i = 3; i < 8; ++i) inputs.push_back(ctx.has(i) ? ctx.value(i) : LoweredValue());
  return lower_as(ctx, "LSTM", 14, std::move(inputs), ctx.node.attributes);
}

} // namespace

void register_quantized_gemm(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("QGemm", since(1), qgemm, domain);
  r.add("MatMulIntegerToFloat", since(1), matmul_integer_to_float, domain);
  r.add("DynamicQuantizeMatMul", since(1), dynamic_quantize_matmul, domain);
  r.add("MatMulInteger16", since(1), matmul_integer16, domain);
  r.add("QLinearConv", since(1), qlinear_conv, domain);
  r.add("DynamicQuantizeLSTM", since(1), dynamic_quantize_lstm, domain);
}

} // namespace tbx::lowering
