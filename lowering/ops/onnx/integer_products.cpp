// MatMulInteger and ConvInteger, and what other lowerings need of them: exact products of 8-bit integers.
// With one zero point for each operand the bytes go to the library as they are; else operands become i32
// first, except constant weights, whose zero points are applied to the result.
#include <fmt/format.h>

#include <algorithm>

#include "base/byte_sums.h"
#include "lowering/ops/families.h"
#include "lowering/ops/onnx/integer_products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Values less one zero point (i32, shape [1]; undefined: 0).
struct Bytes {
  TensorBox values, zero;
};

TensorBox integer(OpContext& ctx, int64_t v) {
  Tensor t = Tensor::make(DType::i32, {1});
  t.as_mutable<int32_t>()[0] = static_cast<int32_t>(v);
  return ir::make_constant(ctx.program, std::move(t));
}

/// The value that all elements have; nullopt where they differ.
std::optional<int64_t> one_value(const Tensor& t) {
  if (t.numel() == 0) return std::nullopt;
  std::vector<int64_t> v = to_ints(t);
  if (std::any_of(v.begin(), v.end(), [&](int64_t x) { return x != v[0]; })) return std::nullopt;
  return v[0];
}

/// Inputs `x` and `zero` of the node (-1: none); nullopt where several zero points differ. `to_signed`: u8
/// becomes i8, 128 less, with its zero point.
std::optional<Bytes> bytes(OpContext& ctx, int x, int zero, bool to_signed) {
  if (!is_byte(ctx.dtype(x))) return std::nullopt;
  const bool shift = to_signed && ctx.dtype(x) == DType::u8;
  std::optional<int64_t> known = 0;
  TensorBox given;
  if (zero >= 0 && ctx.has(zero)) {
    auto constant = ctx.constant(zero);
    known = constant ? one_value(*constant) : std::nullopt;
    if (!known) {
      if (constant || !ir::product(ctx.sizes(zero)).is(1)) return std::nullopt;
      given = ir::reshape(ctx.program, convert(ctx, ctx.in(zero), DType::i32), {SymInt(1)});
    }
  }
  Bytes b;
  if (!shift) {
    b.values = ctx.in(x);
  } else if (auto t = ctx.constant(x)) {
    Tensor s = Tensor::make(DType::i8, t->dims);
    std::transform(t->as<uint8_t>().begin(), t->as<uint8_t>().end(), s.as_mutable<int8_t>().begin(),
                   [](uint8_t v) { return static_cast<int8_t>(v - 128); });
    b.values = ir::make_constant(ctx.program, std::move(s));
  } else {
    b.values = map(ctx, DType::i8, ctx.in(x), [](Expr e) {
      Expr wide = to_compute(e, DType::i32);
      return to_compute(ir::sub(wide, number(wide, 128)), DType::i8);
    });
  }
  if (known) {
    int64_t v = *known - (shift ? 128 : 0);
    if (v != 0) b.zero = integer(ctx, v);
  } else {
    b.zero = !shift ? given : map(ctx, DType::i32, given, [](Expr e) { return ir::sub(e, number(e, 128)); });
  }
  return b;
}

TensorBox shifted(OpContext& ctx, int x, int zero_point, bool rows) {
  const TensorBox& box = ctx.in(x);
  if (!ctx.has(zero_point)) return convert(ctx, box, DType::i32);
  TensorBox zero = ctx.in(zero_point);
  if (zero.rank() == 1 && !zero.sizes()[0].is(1) && rows)
    zero = ir::unsqueeze(ctx.program, zero, std::vector<int>{1});
  std::vector<TensorBox> both{convert(ctx, box, DType::i32), convert(ctx, zero, DType::i32)};
  return map(ctx, DType::i32, both, [](std::span<const Expr> e) { return ir::sub(e[0], e[1]); });
}

/// Integer input `x` minus its zero point, in i32; `axis` is where a per-channel zero point lies.
TensorBox without_zero_point(OpContext& ctx, int x, int zero_point, int axis) {
  TensorBox box = convert(ctx, ctx.in(x), DType::i32);
  if (!ctx.has(zero_point)) return box;
  TensorBox zero = convert(ctx, ctx.in(zero_point), DType::i32);
  if (zero.rank() == 1) {
    TBX_MODEL(axis < box.rank(), "a zero point per channel for an input of rank {}", box.rank());
    SymInts shape(box.rank(), SymInt(1));
    shape[axis] = zero.sizes()[0];
    zero = ir::reshape(ctx.program, zero, shape);
  }
  std::vector<TensorBox> both{box, zero};
  return map(ctx, DType::i32, both, [](std::span<const Expr> e) { return ir::sub(e[0], e[1]); });
}

/// Constant weights as i8, and what is still to be subtracted from those of each output channel.
struct SignedWeights {
  Tensor values;
  std::vector<int32_t> zeros; ///< empty: nothing
};

/// nullopt where weights or zero points are not constant bytes, one zero point or one per output channel.
std::optional<SignedWeights> signed_weights(OpContext& ctx, int w, int w_zero) {
  auto t = ctx.constant(w), z = ctx.has(w_zero) ? ctx.constant(w_zero) : nullptr;
  if (!t || !is_byte(t->dtype) || t->dims.empty() || t->numel() == 0 || (ctx.has(w_zero) && !z))
    return std::nullopt;
  const int64_t channels = t->dims[0], each = t->numel() / channels;
  const std::vector<int64_t> zeros = z ? to_ints(*z) : std::vector<int64_t>{0};
  if (z && (!is_byte(z->dtype) || (z->numel() != 1 && z->numel() != channels))) return std::nullopt;
  std::vector<int64_t> values = to_ints(*t);
  auto zero = [&](int64_t channel) { return zeros[zeros.size() > 1 ? channel : 0]; };
  bool fits = true;
  for (int64_t i = 0; i < t->numel(); ++i) {
    const int64_t v = values[i] - zero(i / each);
    fits = fits && v >= -128 && v <= 127;
  }
  const int64_t shift = t->dtype == DType::u8 ? 128 : 0;
  SignedWeights result{Tensor::make(DType::i8, t->dims), {}};
  for (int64_t i = 0; i < t->numel(); ++i)
    result.values.as_mutable<int8_t>()[i] = static_cast<int8_t>(values[i] - (fits ? zero(i / each) : shift));
  if (!fits)
    for (int64_t c = 0; c < channels; ++c) result.zeros.push_back(static_cast<int32_t>(zero(c) - shift));
  return result;
}

/// The weights with an output channel of ones behind those of each group, or such channels alone.
TensorBox with_ones(OpContext& ctx, const Tensor& weights, int64_t groups, bool alone) {
  const int64_t each = weights.dims[0] / groups, terms = weights.numel() / weights.dims[0];
  std::vector<int64_t> dims = weights.dims;
  dims[0] = groups + (alone ? 0 : dims[0]);
  Tensor t = Tensor::make(DType::i8, dims);
  auto from = weights.as<int8_t>().begin();
  auto to = t.as_mutable<int8_t>().begin();
  for (int64_t g = 0; g < groups; ++g) {
    if (!alone) to = std::copy_n(from + g * each * terms, each * terms, to);
    to = std::fill_n(to, terms, int8_t{1});
  }
  return ir::make_constant(ctx.program, std::move(t));
}

/// x * (w - z) as x * w less z times the sums of x under the window, which ones as weights give: as one more
/// output channel of each group, or as a convolution with one output channel for each. The library has fast
/// kernels of bytes for groups of one channel, which would have two; ours turn the image once instead of
/// twice.
TensorBox conv_of_signed(OpContext& ctx, const Bytes& x, const SignedWeights& w) {
  ZeroPoints zeros{x.zero, {}};
  auto conv = [&](const TensorBox& weights) {
    return conv_boxes(ctx, x.values, weights, nullptr, DType::i32, &zeros);
  };
  if (w.zeros.empty()) return conv(ir::make_constant(ctx.program, w.values));
  ir::Program& p = ctx.program;
  const int64_t channels = w.values.dims[0], groups = ctx.attr_int("group", 1), each = channels / groups;
  TensorBox y, sums;
  if (groups == 1) {
    TensorBox both = conv(with_ones(ctx, w.values, 1, false));
    y = ir::slice(p, both, 1, 0, 1, channels);
    sums = ir::slice(p, both, 1, channels, 1, 1);
  } else {
    // [image, group, output channel of it, ...]
    auto split = [&](const TensorBox& t, int64_t of_group) {
      SymInts sizes = t.sizes();
      sizes[1] = groups;
      sizes.insert(sizes.begin() + 2, of_group);
      return ir::reshape(p, t, sizes);
    };
    auto joined = [&](const TensorBox& t) {
      SymInts sizes = t.sizes();
      sizes[2] = each;
      TensorBox all = ir::expand(p, t, sizes);
      sizes.erase(sizes.begin() + 1);
      sizes[1] = channels;
      return ir::reshape(p, all, sizes);
    };
    const bool library = p.target.cuda || p.target.byte_group == 1;
    if (library) {
      y = conv(ir::make_constant(p, w.values));
      sums = joined(split(conv(with_ones(ctx, w.values, groups, true)), 1));
    } else {
      TensorBox both = split(conv(with_ones(ctx, w.values, groups, false)), each + 1);
      y = joined(ir::slice(p, both, 2, 0, 1, each));
      sums = joined(ir::slice(p, both, 2, each, 1, 1));
    }
  }
  Tensor t = Tensor::make(DType::i32, {channels});
  std::copy(w.zeros.begin(), w.zeros.end(), t.as_mutable<int32_t>().begin());
  const TensorBox xs[] = {y, sums, per_channel(ctx, ir::make_constant(p, std::move(t)), y.rank())};
  return map(ctx, DType::i32, xs, [](std::span<const Expr> v) { return ir::sub(v[0], ir::mul(v[1], v[2])); });
}

} // namespace

namespace {

/// The zero points of the columns of matrix `b`, as i32 less what makes its bytes signed; undefined: not one
/// for each column.
TensorBox zeros_of_columns(OpContext& ctx, int b, int b_zero) {
  if (!ctx.has(b_zero) || ctx.rank(b_zero) != 1 || ctx.sizes(b_zero)[0].is(1) || ctx.rank(b) < 2) return {};
  const double shift = ctx.dtype(b) == DType::u8 ? 128 : 0;
  return map(ctx, DType::i32, convert(ctx, ctx.in(b_zero), DType::i32),
             [&](Expr e) { return ir::sub(e, number(e, shift)); });
}

/// The sum of each row of `x` less its zero point; the rows stay as [..., 1].
TensorBox sums_of_rows(OpContext& ctx, const Bytes& x) {
  const int last = x.values.rank() - 1;
  AxisReducer reduce(ctx, x.values.sizes(), {last});
  TensorBox sum = reduce(ReduceOp::sum, DType::i32, convert(ctx, x.values, DType::i32));
  if (!x.zero.defined()) return sum;
  const SymInt count = reduce.count();
  return map(ctx, DType::i32, sum, x.zero, [&](Expr total, Expr zero) {
    return ir::sub(total, ir::mul(zero, size_as(ctx.c, count, DType::i32)));
  });
}

/// Of each column of a matrix of constant bytes, as `bytes` makes them signed.
ByteSums sums_of_constant_columns(const Tensor& t) {
  const int64_t strides[] = {t.dims[1], 1};
  return byte_sums(t.data, t.dtype, t.dims, strides, 1);
}

/// Libraries apply zero points in float32, which is exact while sums stay below 2^24. Constant matrices `b`
/// are looked at, other ones taken for the largest bytes.
bool zero_points_may_round(OpContext& ctx, const Bytes& left, const Bytes& right, int b) {
  if (!left.zero.defined() && !right.zero.defined()) return false;
  constexpr int64_t kExact = int64_t{1} << 24, kLeft = 255, kRight = 128;
  const std::optional<int64_t> terms = right.values.sizes()[right.values.rank() - 2].as_constant();
  if (!terms) return true;
  const int64_t of_zero = right.zero.defined() ? kLeft * kRight : 0;
  if (*terms < kExact / (kLeft * kRight + of_zero)) return false;
  auto t = ctx.constant(b);
  if (!t || t->dims.size() != 2 || *terms >= kExact / (kLeft + of_zero)) return true;
  const ByteSums sums = sums_of_constant_columns(*t);
  int64_t largest = 0;
  for (size_t c = 0; c < sums.above.size(); ++c) largest = std::max(largest, sums.above[c] + sums.below[c]);
  return kLeft * largest + of_zero * *terms >= kExact;
}

/// The sum of each column of `b`, which are those of `values`; the columns stay as [..., 1, n].
TensorBox sums_of_columns(OpContext& ctx, const TensorBox& values, int b) {
  if (auto t = ctx.constant(b); t && t->dims.size() == 2) {
    Tensor sums = Tensor::make(DType::i32, {1, t->dims[1]});
    const ByteSums from = sums_of_constant_columns(*t);
    std::transform(from.above.begin(), from.above.end(), from.below.begin(),
                   sums.as_mutable<int32_t>().begin(),
                   [](int64_t above, int64_t below) { return static_cast<int32_t>(above - below); });
    return ir::make_constant(ctx.program, std::move(sums));
  }
  AxisReducer reduce(ctx, values.sizes(), {values.rank() - 2});
  return reduce(ReduceOp::sum, DType::i32, convert(ctx, values, DType::i32));
}

/// (a - za) * (b - zb) as a * b - za * (sums of b's columns - k zb) - zb * (sums of a's rows): all in
/// integers.
TensorBox product_less_zero_points(OpContext& ctx, const Bytes& left, const Bytes& right, int b) {
  TensorBox y = matmul_boxes(ctx, left.values, right.values, DType::i32, nullptr);
  const SymInt terms = right.values.sizes()[right.values.rank() - 2];
  if (left.zero.defined()) {
    TensorBox columns = sums_of_columns(ctx, right.values, b);
    if (right.zero.defined())
      columns = map(ctx, DType::i32, columns, right.zero, [&](Expr sum, Expr zero) {
        return ir::sub(sum, ir::mul(zero, size_as(ctx.c, terms, DType::i32)));
      });
    const TensorBox xs[] = {y, columns, left.zero};
    y = map(ctx, DType::i32, xs, [](std::span<const Expr> v) { return ir::sub(v[0], ir::mul(v[1], v[2])); });
  }
  if (right.zero.defined()) {
    const TensorBox xs[] = {y, sums_of_rows(ctx, {left.values, {}}), right.zero};
    y = map(ctx, DType::i32, xs, [](std::span<const Expr> v) { return ir::sub(v[0], ir::mul(v[1], v[2])); });
  }
  return y;
}

} // namespace

TensorBox integer_matmul(OpContext& ctx, int a, int a_zero, int b, int b_zero) {
  auto left = bytes(ctx, a, a_zero, false), right = bytes(ctx, b, b_zero, true);
  if (TensorBox columns = zeros_of_columns(ctx, b, b_zero); left && !right && columns.defined()) {
    // a * (b - z) is a * b less z times the sum of the row.
    if (auto raw = bytes(ctx, b, -1, true)) {
      raw->zero = {}; // what makes the bytes signed is in `columns`
      ZeroPoints zeros{left->zero, {}};
      TensorBox y = matmul_boxes(ctx, left->values, raw->values, DType::i32, &zeros);
      TensorBox sums = sums_of_rows(ctx, *left);
      if (left->values.rank() == 1) sums = ir::reshape(ctx.program, sums, {SymInt(1)});
      const TensorBox xs[] = {y, sums, columns};
      return map(ctx, DType::i32, xs,
                 [](std::span<const Expr> v) { return ir::sub(v[0], ir::mul(v[1], v[2])); });
    }
  }
  if (!left || !right)
    return matmul_boxes(ctx, shifted(ctx, a, a_zero, true), shifted(ctx, b, b_zero, false), DType::i32);
  if (!ctx.program.target.cuda && left->values.dtype() == DType::u8 && left->values.rank() > 1 &&
      right->values.rank() > 1 && zero_points_may_round(ctx, *left, *right, b))
    return product_less_zero_points(ctx, *left, *right, b);
  ZeroPoints zeros{left->zero, right->zero};
  return matmul_boxes(ctx, left->values, right->values, DType::i32, &zeros);
}

TensorBox integer_conv(OpContext& ctx, int x, int x_zero, int w, int w_zero) {
  if (ctx.has(w_zero) && ctx.rank(w) > 0) {
    SymInt zeros = ir::product(ctx.sizes(w_zero)), channels = ctx.sizes(w)[0];
    TBX_MODEL(!zeros.is_constant() || !channels.is_constant() || zeros.is(1) ||
                  ir::provably_equal(zeros, channels),
              "{} zero points for weights of {} output channels", zeros.constant(), channels.constant());
  }
  auto image = bytes(ctx, x, x_zero, false), weights = bytes(ctx, w, w_zero, true);
  if (image && (!weights || weights->zero.defined()))
    if (auto constant = signed_weights(ctx, w, w_zero)) return conv_of_signed(ctx, *image, *constant);
  if (!image || !weights || weights->zero.defined() || !ctx.constant(w))
    return conv_boxes(ctx, without_zero_point(ctx, x, x_zero, 1), without_zero_point(ctx, w, w_zero, 0),
                      nullptr, DType::i32);
  ZeroPoints zeros{image->zero, {}};
  return conv_boxes(ctx, image->values, weights->values, nullptr, DType::i32, &zeros);
}

namespace {

/// What the pass multiply_integers made of a product of floats is the sum of at most `most_terms` products,
/// which 32 bits hold; the operator itself has no such limit.
Values matmul_integer(OpContext& ctx) {
  if (const int64_t most = ctx.attr_int("most_terms", 0); most > 0 && ctx.rank(1) > 0) {
    const SymInt terms = ctx.sizes(1)[std::max(0, ctx.rank(1) - 2)];
    ctx.program.add_check(SymInt(most) - terms, false,
                          fmt::format("the sum of {} products of dequantised bytes may exceed 32 bits, which "
                                      "hold that of {}; disable the pass multiply_integers for float32",
                                      ir::to_string(terms), most));
  }
  return {integer_matmul(ctx, 0, 2, 1, 3)};
}

} // namespace

void register_integer_products(Registry& r) {
  r.add("MatMulInteger", since(10), matmul_integer);
  r.add("ConvInteger", since(10), [](OpContext& ctx) -> Values { return {integer_conv(ctx, 0, 2, 1, 3)}; });
}

} // namespace tbx::lowering
