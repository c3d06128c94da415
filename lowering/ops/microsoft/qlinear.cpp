// com.microsoft element-wise operators over 8-bit tensors with a scale and a zero point. The order of
// arithmetic is that of ONNX Runtime's x86 kernels, so that results are equal to the bit; where its kernels
// differ between machines, the comment says which one is followed.
#include <algorithm>
#include <limits>

#include "lowering/ops/families.h"
#include "lowering/ops/microsoft/qlinear.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {

Expr one_value(OpContext& ctx, int i) {
  SymInt n = ir::product(ctx.sizes(i));
  TBX_MODEL(!n.is_constant() || n.is(1), "input {} has {} elements, expected a scale or zero point of one", i,
            n.constant());
  ctx.program.add_check(n - SymInt(1), true,
                        fmt::format("{}: input {} is no single value", ctx.node.op_type, i));
  DType type = compute_type(ctx.dtype(i));
  if (auto t = ctx.constant(i))
    return is_float(type) ? ctx.c.constant(type, element_as_double(*t, 0))
                          : ctx.c.constant_int(type, element_as_int(*t, 0));
  return ctx.in(i).load(ctx.program, SymInts(ctx.rank(i), SymInt(0)));
}

Scaled scaled(OpContext& ctx, int scale, int zero, DType type) {
  TBX_MODEL(ctx.dtype(scale) == DType::f32, "the scale (input {}) is of type {}, expected float", scale,
            name_of(ctx.dtype(scale)));
  Scaled s{one_value(ctx, scale), ctx.c.constant_int(DType::i32, 0)};
  if (!ctx.has(zero)) return s;
  TBX_MODEL(ctx.dtype(zero) == type, "the zero point (input {}) is of type {}, the data of type {}", zero,
            name_of(ctx.dtype(zero)), name_of(type));
  s.zero = to_compute(one_value(ctx, zero), DType::i32);
  return s;
}

Expr dequantized(Expr x, const Scaled& s) {
  return ir::mul(s.scale, to_compute(ir::sub(to_compute(x, DType::i32), s.zero), DType::f32));
}

DType byte_type(OpContext& ctx, int i) {
  DType type = ctx.dtype(i);
  TBX_MODEL(is_byte(type), "input {} is of type {}, expected int8 or uint8", i, name_of(type));
  return type;
}

namespace {

using Values = std::vector<LoweredValue>;

Expr f32(Expr x) { return to_compute(x, DType::f32); }

Expr quantized_to(Expr value, const Scaled& to, DType type) {
  return lowering::quantized(ir::div(value, to.scale), to.zero, type);
}

/// a * b + c with one rounding: the factors have 8 and 24 bits, so their product is exact in f64.
Expr fused_multiply_add(Expr a, Expr b, Expr c) {
  auto wide = [](Expr e) { return to_compute(e, DType::f64); };
  return f32(ir::add(ir::mul(wide(a), wide(b)), wide(c)));
}

/// Which operand of a broadcast is one value along the whole innermost dimensions that the other has.
enum class Repeated { none, a, b };
Repeated repeated_operand(const TensorBox& a, const TensorBox& b) {
  for (int k = 1; k <= std::max(a.rank(), b.rank()); ++k) {
    bool one_a = k > a.rank() || a.sizes()[a.rank() - k].is(1);
    bool one_b = k > b.rank() || b.sizes()[b.rank() - k].is(1);
    if (one_a && !one_b) return Repeated::a;
    if (one_b && !one_a) return Repeated::b;
    if (!one_a) return Repeated::none;
  }
  return Repeated::a;
}

/// As the AVX2 kernel: everything that does not depend on the elements is one addend, the rest are fused
/// multiply-adds. (The kernel for SSE2 rounds the products too, those for ARM count in fixed point.)
Values qlinear_add(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  TBX_MODEL(ctx.dtype(3) == type, "B is of type {}, A of type {}", name_of(ctx.dtype(3)), name_of(type));
  Scaled a = scaled(ctx, 1, 2, type), b = scaled(ctx, 4, 5, type), c = scaled(ctx, 6, 7, type);
  Expr ratio_a = ir::div(a.scale, c.scale), ratio_b = ir::div(b.scale, c.scale);
  Expr fixed = ir::sub(f32(c.zero), fused_multiply_add(ratio_a, f32(a.zero), ir::mul(ratio_b, f32(b.zero))));
  Repeated repeated = repeated_operand(ctx.in(0), ctx.in(3));
  return {map(ctx, type, ctx.in(0), ctx.in(3), [&](Expr x, Expr y) {
    x = f32(x);
    y = f32(y);
    Expr sum;
    if (repeated == Repeated::a)
      sum = fused_multiply_add(y, ratio_b, ir::add(fixed, ir::mul(x, ratio_a)));
    else if (repeated == Repeated::b)
      sum = fused_multiply_add(x, ratio_a, ir::add(fixed, ir::mul(y, ratio_b)));
    else
      sum = fused_multiply_add(x, ratio_a, fused_multiply_add(y, ratio_b, fixed));
    return lowering::quantized(sum, nullptr, type);
  })};
}

/// The zero point is added before rounding.
Values qlinear_mul(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  TBX_MODEL(ctx.dtype(3) == type, "B is of type {}, A of type {}", name_of(ctx.dtype(3)), name_of(type));
  Scaled a = scaled(ctx, 1, 2, type), b = scaled(ctx, 4, 5, type), c = scaled(ctx, 6, 7, type);
  Expr ratio = ir::div(ir::mul(a.scale, b.scale), c.scale);
  return {map(ctx, type, ctx.in(0), ctx.in(3), [&](Expr x, Expr y) {
    Expr product =
        ir::mul(ir::sub(to_compute(x, DType::i32), a.zero), ir::sub(to_compute(y, DType::i32), b.zero));
    return lowering::quantized(ir::add(ir::mul(f32(product), ratio), f32(c.zero)), nullptr, type);
  })};
}

/// One input through a function of real numbers.
Values qlinear_unary(OpContext& ctx, const UnaryBody& body) {
  DType type = byte_type(ctx, 0);
  Scaled from = scaled(ctx, 1, 2, type), to = scaled(ctx, 3, 4, type);
  return {
      map(ctx, type, ctx.in(0), [&](Expr x) { return quantized_to(body(dequantized(x, from)), to, type); })};
}

Values qlinear_sigmoid(OpContext& ctx) {
  return qlinear_unary(ctx, [](Expr x) { return ir::unary(Op::sigmoid, x); });
}

Values qlinear_leaky_relu(OpContext& ctx) {
  double alpha = ctx.attr_float("alpha", 0.01f);
  return qlinear_unary(ctx, [alpha](Expr x) {
    return ir::where(ir::binary(Op::greater_equal, x, number(x, 0)), x, ir::mul(number(x, alpha), x));
  });
}

/// `x` with other parameters; itself where they are known to be the same.
TensorBox requantized(OpContext& ctx, const TensorBox& x, const Scaled& from, const Scaled& to, DType type) {
  if (from.scale == to.scale && from.zero == to.zero) return x;
  return map(ctx, type, x, [&](Expr e) { return quantized_to(dequantized(e, from), to, type); });
}

Values qlinear_concat(OpContext& ctx) {
  int n = ctx.num_inputs();
  TBX_MODEL(n >= 5 && (n - 2) % 3 == 0,
            "{} inputs, expected scale and zero point of the result and three for each tensor", n);
  DType type = byte_type(ctx, 1);
  Scaled to = scaled(ctx, 0, 1, type);
  std::vector<TensorBox> parts;
  for (int i = 2; i < n; i += 3) {
    TBX_MODEL(ctx.dtype(i) == type, "input {} is of type {}, the result of type {}", i, name_of(ctx.dtype(i)),
              name_of(type));
    parts.push_back(requantized(ctx, ctx.in(i), scaled(ctx, i + 1, i + 2, type), to, type));
  }
  return {concatenate(ctx, parts, ctx.axis(ctx.required_int("axis"), parts[0].rank()))};
}

Values qlinear_where(OpContext& ctx) {
  DType type = byte_type(ctx, 1);
  TBX_MODEL(ctx.dtype(4) == type, "Y is of type {}, X of type {}", name_of(ctx.dtype(4)), name_of(type));
  TBX_MODEL(ctx.dtype(0) == DType::boolean, "condition is of type {}", name_of(ctx.dtype(0)));
  Scaled to = scaled(ctx, 7, 8, type);
  const TensorBox xs[] = {ctx.in(0), requantized(ctx, ctx.in(1), scaled(ctx, 2, 3, type), to, type),
                          requantized(ctx, ctx.in(4), scaled(ctx, 5, 6, type), to, type)};
  return {map(ctx, type, xs, [](std::span<const Expr> v) { return ir::where(v[0], v[1], v[2]); })};
}

/// C = (A - A_zero_point) * (B - B_zero_point) in i32.
Values mul_integer(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  auto zero = [&](int i) {
    return ctx.has(i) ? to_compute(one_value(ctx, i), DType::i32) : ctx.c.constant_int(DType::i32, 0);
  };
  TBX_MODEL(ctx.dtype(2) == type, "B is of type {}, A of type {}", name_of(ctx.dtype(2)), name_of(type));
  Expr a = zero(1), b = zero(3);
  return {map(ctx, DType::i32, ctx.in(0), ctx.in(2), [&](Expr x, Expr y) {
    return ir::mul(ir::sub(to_compute(x, DType::i32), a), ir::sub(to_compute(y, DType::i32), b));
  })};
}

// --- softmax

/// f32(exp((i - 255 + shift) * scale)) for i from 0 to 255. The shift makes the largest entry e^-5 / D of the
/// largest float, D the number of elements to be summed; at least 2, as 256 times the entry must be finite
/// (in ONNX Runtime it is not for D = 1).
TensorBox exponentials(OpContext& ctx, Expr scale, SymInt count) {
  scale = to_compute(scale, DType::f64);
  Expr largest = ctx.c.constant(DType::f32, std::numeric_limits<float>::max());
  Expr share = to_compute(ir::div(largest, size_as(ctx.c, ir::max(count, 2), DType::f32)), DType::f64);
  Expr room = ir::sub(ir::unary(Op::log, share), number(share, 5));
  Expr shift = ir::div(ir::binary(Op::max, room, number(room, 0)), scale);
  TensorBox table = generate(ctx, DType::f32, {256}, [&](std::span<const SymInt> at) {
    Expr i = to_compute(ctx.c.index(at[0] - SymInt(255)), DType::f64);
    return f32(ir::unary(Op::exp, ir::mul(ir::add(i, shift), scale)));
  });
  realize(ctx, table, "table of exponentials");
  return table;
}

/// 1 / y_scale is rounded down to an integer, and only sums of f32 are taken. Where ONNX Runtime's int8
/// result passes 127 it wraps; here it saturates.
Values qlinear_softmax(OpContext& ctx) {
  DType type = byte_type(ctx, 0);
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 1, "X has rank 0");
  bool old = ctx.required_int("opset") < 13;
  int axis = ctx.axis(ctx.attr_int("axis", old ? 1 : -1), x.rank());
  AxisReducer reduce(ctx, x.sizes(), old ? axes_from(axis, x.rank()) : std::vector<int>{axis});
  Scaled from = scaled(ctx, 1, 2, type), to = scaled(ctx, 3, 4, type);
  TensorBox table = exponentials(ctx, from.scale, reduce.count());
  shared(ctx, x, 2);
  TensorBox greatest = reduce(ReduceOp::max, type, x);
  TensorBox e = map(ctx, DType::f32, x, greatest, [&](Expr v, Expr most) {
    Expr below = ir::sub(to_compute(v, DType::i32), to_compute(most, DType::i32));
    Expr place = to_compute(ir::add(below, number(below, 255)), DType::i64);
    const SymInt at[] = {ctx.c.indirect(place, 256, false)};
    return table.load(ctx.program, at);
  });
  shared(ctx, e, 2);
  TensorBox sum = reduce(ReduceOp::sum, DType::f32, e);
  Expr one = ctx.c.constant(DType::f32, 1), steps = ir::unary(Op::floor, ir::div(one, to.scale));
  return {map(ctx, type, e, sum, [&](Expr v, Expr s) {
    return lowering::quantized(ir::div(ir::mul(v, steps), s), to.zero, type);
  })};
}

} // namespace

void register_qlinear(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("QLinearAdd", since(1), qlinear_add, domain);
  r.add("QLinearMul", since(1), qlinear_mul, domain);
  r.add("QLinearSigmoid", since(1), qlinear_sigmoid, domain);
  r.add("QLinearLeakyRelu", since(1), qlinear_leaky_relu, domain);
  r.add("QLinearConcat", since(1), qlinear_concat, domain);
  r.add("QLinearWhere", since(1), qlinear_where, domain);
  r.add("QLinearSoftmax", since(1), qlinear_softmax, domain);
  r.add("MulInteger", since(1), mul_integer, domain);
  r.type_from(0, {"QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"},
              domain);
}

} // namespace tbx::lowering
