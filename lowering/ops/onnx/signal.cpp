// Signals: DFT, STFT, windows, the mel weight matrix; also Det, which is a host kernel like the transforms.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/onnx/cast.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// x [..., n, 1 or 2] transformed along its last but one dimension to length `n`.
TensorBox transform(OpContext& ctx, const TensorBox& x, SymInt length, bool inverse, bool onesided) {
  SymInts sizes = x.sizes();
  sizes.end()[-2] = onesided && !inverse ? ir::floordiv(length, 2) + SymInt(1) : length;
  sizes.back() = inverse && onesided ? 1 : 2;
  TensorBox n = ir::make_symbolic(ctx.program, {length});
  return host_call(ctx, {x, n}, {{x.dtype(), sizes}},
                   {{"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}})[0]
      .tensor;
}

/// A scalar integer that must be known while compiling.
SymInt known_scalar(OpContext& ctx, int i, const char* what) {
  SymInts v = ctx.known_or_throw(i, what);
  TBX_MODEL(v.size() == 1, "{} has {} elements, expected 1", what, v.size());
  return v[0];
}

Values dft(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 2, "the input has rank {}, expected at least 2", x.rank());
  SymInt parts = x.sizes().back();
  TBX_MODEL(!parts.is_constant() || parts.is(1) || parts.is(2),
            "the last dimension of the input is {}, expected 1 (real) or 2 (complex)", parts.constant());
  const bool inverse = ctx.attr_int("inverse", 0) != 0, onesided = ctx.attr_int("onesided", 0) != 0;
  int64_t axis = ctx.opset() < 20 ? ctx.attr_int("axis", 1) : -2;
  if (ctx.opset() >= 20 && ctx.has(2)) {
    std::vector<int64_t> given = ctx.ints_or_throw(2, "axis");
    TBX_MODEL(given.size() == 1, "axis has {} elements, expected 1", given.size());
    axis = given[0];
  }
  const int along = ctx.axis(axis, x.rank());
  TBX_MODEL(along != x.rank() - 1, "axis {} is the dimension of real and imaginary parts", axis);
  SymInt have = x.sizes()[along], length = have;
  if (ctx.has(1))
    length = known_scalar(ctx, 1, "dft_length");
  else if (inverse && onesided)
    length = ir::max((have - SymInt(1)) * SymInt(2), 0);
  // Of no elements there are no frequencies, but half of them are one.
  TBX_MODEL(!length.is_constant() || length.constant() > 0 || (have.is(0) && !onesided), "dft_length is {}",
            length.constant());
  ctx.program.add_check(length - SymInt(onesided ? 1 : 0), false, "DFT: dft_length is not positive");
  std::vector<int> order(static_cast<size_t>(x.rank()));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[along], order[x.rank() - 2]);
  TensorBox y = transform(ctx, ir::permute(ctx.program, x, order), length, inverse, onesided);
  return {ir::permute(ctx.program, y, order)};
}

/// signal [batch, n, 1 or 2], or of real numbers [batch, n] -> [batch, frames, bins, 2]
Values stft(OpContext& ctx) {
  TensorBox x = ctx.in(0);
  if (x.rank() == 2) x = ir::unsqueeze(ctx.program, x, std::array{2}); // as ONNX Runtime takes it
  TBX_MODEL(x.rank() == 3, "signal has rank {}, expected 3, [batch, length, 1 or 2], or 2, [batch, length]",
            x.rank());
  std::vector<int64_t> step = ctx.ints_or_throw(1, "frame_step");
  TBX_MODEL(step.size() == 1 && step[0] > 0, "frame_step has {} elements, expected 1 above 0", step.size());
  if (ctx.has(2)) TBX_MODEL(ctx.rank(2) == 1, "window has rank {}, expected 1", ctx.rank(2));
  SymInt window = ctx.has(2) ? ctx.sizes(2)[0] : SymInt(0), length;
  if (ctx.has(3))
    length = known_scalar(ctx, 3, "frame_length");
  else
    length = ctx.has(2) ? window : x.sizes()[1];
  TBX_MODEL(!length.is_constant() || length.constant() > 0, "frame_length is {}", length.constant());
  ctx.program.add_check(length - SymInt(1), false, "STFT: frame_length is not positive");
  ctx.program.add_check(x.sizes()[1] - length, false, "STFT: the signal is shorter than a frame");
  SymInt frames = ir::floordiv(x.sizes()[1] - length, step[0]) + SymInt(1);
  SymInts sizes{x.sizes()[0], frames, length, x.sizes()[2]};
  TensorBox framed = generate(ctx, x.dtype(), sizes, [&](std::span<const SymInt> at) {
    const SymInt place[] = {at[0], at[1] * SymInt(step[0]) + at[2], at[3]};
    Expr v = x.load(ctx.program, place);
    if (!ctx.has(2)) return v;
    Expr w = ctx.in(2).load(ctx.program, {&at[2], 1});
    if (ir::provably_equal(window, length)) return ir::mul(v, w);
    // Beyond the window a frame is 0.
    Expr inside = ir::binary(Op::less, ctx.c.index(at[2]), ctx.c.index(window));
    return ir::where(inside, ir::mul(v, ir::mask_loads(w, inside)), number(v, 0));
  });
  return {transform(ctx, framed, length, false, ctx.attr_int("onesided", 1) != 0)};
}

/// Triangular filters between band edges that are equally spaced in mel: [dft_length / 2 + 1, num_mel_bins].
Values mel_weight_matrix(OpContext& ctx) {
  SymInt bins = known_scalar(ctx, 0, "num_mel_bins"), length = known_scalar(ctx, 1, "dft_length");
  ctx.program.add_check(bins, false, "MelWeightMatrix: num_mel_bins is negative");
  ctx.program.add_check(length, false, "MelWeightMatrix: dft_length is negative");
  const DType type = ctx.attr_dtype("output_datatype", DType::f32);
  auto scalar = [&](int i) {
    return to_compute(ir::reshape(ctx.program, ctx.in(i), {}).load(ctx.program, {}), DType::f64);
  };
  auto f = [&](double v) { return ctx.c.constant(DType::f64, v); };
  auto to_mel = [&](Expr hertz) {
    Expr log = ir::unary(Op::log1p, ir::div(hertz, f(700)));
    return ir::div(ir::mul(f(2595), log), f(std::log(10.0)));
  };
  Expr low = to_mel(scalar(3)), high = to_mel(scalar(4)), rate = scalar(2);
  Expr step = ir::div(ir::sub(high, low), to_compute(ctx.c.index(bins + SymInt(2)), DType::f64));
  Expr lines = to_compute(ctx.c.index(length + SymInt(1)), DType::f64);
  /// The spectrum line where edge `i` lies.
  auto edge = [&](SymInt i) {
    Expr mel = ir::add(ir::mul(to_compute(ctx.c.index(i), DType::f64), step), low);
    Expr exponent = ir::mul(ir::div(mel, f(2595)), f(std::log(10.0)));
    Expr hertz = ir::mul(f(700), ir::unary(Op::expm1, exponent));
    return ctx.c.cast(ir::unary(Op::floor, ir::div(ir::mul(lines, hertz), rate)), DType::i64);
  };
  SymInts sizes{ir::floordiv(length, 2) + SymInt(1), bins};
  return {generate(ctx, type, sizes, [&](std::span<const SymInt> at) {
    Expr line = ctx.c.index(at[0]), left = edge(at[1]), centre = edge(at[1] + SymInt(1)),
         right = edge(at[1] + SymInt(2));
    auto ratio = [&](Expr part, Expr whole) {
      return ir::div(to_compute(part, DType::f64), to_compute(whole, DType::f64));
    };
    Expr falls = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, line, centre),
                            ir::binary(Op::less, line, right));
    Expr rises = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, line, left),
                            ir::binary(Op::less_equal, line, centre));
    Expr up = ir::where(ir::binary(Op::equal, left, centre), f(1),
                        ratio(ir::sub(line, left), ir::sub(centre, left)));
    Expr v =
        ir::where(falls, ratio(ir::sub(right, line), ir::sub(right, centre)), ir::where(rises, up, f(0)));
    return cast_element(v, type);
  })};
}

Values det(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  TBX_MODEL(x.rank() >= 2, "the input has rank {}, expected at least 2", x.rank());
  SymInt rows = x.sizes().end()[-2], columns = x.sizes().back();
  TBX_MODEL(!rows.is_constant() || !columns.is_constant() || rows == columns, "the matrices are {} by {}",
            rows.constant(), columns.constant());
  ctx.program.add_check(rows - columns, true, "Det: the matrices are not square");
  return host_call(ctx, {{x.dtype(), {x.sizes().begin(), x.sizes().end() - 2}}}, {});
}

/// a[0] - a[1] cos(2 pi i / n) + a[2] cos(4 pi i / n), n the size of a periodic window, or one less. In
/// double: results of integral types are cut, and 1 is to stay 1.
LowerFn window(std::array<double, 3> a) {
  return [a](OpContext& ctx) -> Values {
    SymInt size = known_scalar(ctx, 0, "size");
    ctx.program.add_check(size, false, "the size of a window is negative");
    DType type = ctx.attr_dtype("output_datatype", DType::f32);
    SymInt period = ctx.attr_int("periodic", 1) != 0 ? size : size - SymInt(1);
    return {generate(ctx, type, {size}, [&](std::span<const SymInt> at) {
      Expr i = ctx.c.cast(ctx.c.index(at[0]), DType::f64), n = ctx.c.cast(ctx.c.index(period), DType::f64);
      auto wave = [&](double times) {
        return ir::unary(Op::cos, ir::div(ir::mul(i, number(i, 2 * M_PI * times)), n));
      };
      Expr sum = number(i, a[0]); // in this order the ends are 0 and the middle is 1 exactly
      if (a[2] != 0) sum = ir::add(sum, ir::mul(number(i, a[2]), wave(2)));
      sum = ir::sub(sum, ir::mul(number(i, a[1]), wave(1)));
      return cast_element(sum, type, true);
    })};
  };
}

} // namespace

void register_signal(Registry& r) {
  r.add("HannWindow", since(17), window({0.5, 0.5, 0}));
  r.add("HammingWindow", since(17), window({25.0 / 46, 21.0 / 46, 0}));
  r.add("BlackmanWindow", since(17), window({0.42, 0.5, 0.08}));
  r.add("DFT", since(17), dft);
  r.add("STFT", since(17), stft);
  r.add("MelWeightMatrix", since(17), mel_weight_matrix);
  r.add("Det", since(11), det);
  r.need("DFT", 2, between(1, 2));
  for (const char* op : {"HannWindow", "HammingWindow", "BlackmanWindow"}) r.need(op, 0, some());
}

} // namespace tbx::lowering
