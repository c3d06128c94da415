// com.microsoft MatMulBnb4: a product with a matrix stored as bitsandbytes does it, 4 bits that select one of
// 16 numbers, with the largest magnitude of each block beside them.
#include <array>
#include <limits>

#include "lowering/ops/families.h"
#include "lowering/ops/microsoft/packed_integers.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;
using Levels = std::array<float, 16>;

/// Sign, then 2 bits of exponent and 1 of mantissa, over the largest.
constexpr Levels kFp4 = {
    0.0f,  5.208333333e-03f,  0.66666667f,  1.0f,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    -0.0f, -5.208333333e-03f, -0.66666667f, -1.0f, -0.33333333f, -0.5f, -0.16666667f, -0.25f};

/// Quantiles of the normal distribution (QLoRA, arXiv:2305.14314, appendix E).
constexpr Levels kNf4 = {-1.0f,
                         -0.6961928009986877f,
                         -0.5250730514526367f,
                         -0.39491748809814453f,
                         -0.28444138169288635f,
                         -0.18477343022823334f,
                         -0.09105003625154495f,
                         0.0f,
                         0.07958029955625534f,
                         0.16093020141124725f,
                         0.24611230194568634f,
                         0.33791524171829224f,
                         0.44070982933044434f,
                         0.5626170039176941f,
                         0.7229568362236023f,
                         1.0f};

struct Form {
  int64_t k, n, block;
  const Levels& levels;
  int64_t bytes() const { return (n * k + 1) / 2; }
  int64_t blocks() const { return (n * k + block - 1) / block; }
};

Form form_of(OpContext& ctx) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t type = ctx.required_int("quant_type");
  TBX_MODEL(type == 0 || type == 1, "quant_type is {}, expected 0 (FP4) or 1 (NF4)", type);
  Form f{ctx.required_int("K"), ctx.required_int("N"), ctx.required_int("block_size"), type ? kNf4 : kFp4};
  TBX_MODEL(f.k >= 1 && f.k <= kMost && f.n >= 1 && f.n <= kMost, "K is {} and N is {}", f.k, f.n);
  TBX_MODEL(f.block >= 16 && f.block <= kMost && (f.block & (f.block - 1)) == 0,
            "block_size is {}, expected a power of two of at least 16", f.block);
  return f;
}

/// The matrix [N, K] in f32. Constants are converted here, once; the first of two elements is in the high
/// bits of its byte.
TensorBox matrix(OpContext& ctx, const Form& f) {
  auto b = ctx.constant(1), largest = ctx.constant(2);
  if (b && largest) {
    Tensor t = Tensor::make(DType::f32, {f.n, f.k});
    auto to = t.as_mutable<float>();
    const auto from = b->as<uint8_t>();
    for (int64_t block = 0; block < f.blocks(); ++block) {
      auto scale = static_cast<float>(element_as_double(*largest, block));
      for (int64_t i = block * f.block; i < std::min((block + 1) * f.block, f.n * f.k); ++i)
        to[i] = f.levels[from[i / 2] >> (i % 2 ? 0 : 4) & 15] * scale;
    }
    return ctx.box(std::make_shared<const Tensor>(std::move(t)));
  }
  ir::Program& p = ctx.program;
  Tensor levels = Tensor::make(DType::f32, {16});
  std::copy(f.levels.begin(), f.levels.end(), levels.as_mutable<float>().begin());
  TensorBox table = ctx.box(std::make_shared<const Tensor>(std::move(levels)));
  TensorBox bytes = ir::reshape(p, ctx.in(1), {f.bytes()}), scales = ir::reshape(p, ctx.in(2), {f.blocks()});
  return generate(ctx, DType::f32, {f.n, f.k}, [&](std::span<const SymInt> at) {
    SymInt i = at[0] * SymInt(f.k) + at[1];
    const SymInt byte_at[] = {ir::floordiv(i, 2)}, scale_at[] = {ir::floordiv(i, f.block)};
    Expr byte = ctx.c.cast(bytes.load(p, byte_at), DType::i64);
    Expr shift = ctx.c.index(SymInt(4) - ir::mod(i, 2) * SymInt(4));
    Expr level = ir::binary(Op::bitwise_and, ir::binary(Op::shift_right, byte, shift), number(byte, 15));
    const SymInt level_at[] = {ctx.c.indirect(level, 16, false)};
    return ir::mul(table.load(p, level_at), to_compute(scales.load(p, scale_at), DType::f32));
  });
}

/// A [..., K] times the transpose of B [N, K]; with transB = 0, A [..., N] times B.
Values matmul_bnb4(OpContext& ctx) {
  const TensorBox& a = ctx.in(0);
  Form f = form_of(ctx);
  const bool transposed = ctx.attr_int("transB", 1) != 0;
  TBX_MODEL(a.rank() >= 1 && is_float(a.dtype()), "A is of type {} and rank {}", name_of(a.dtype()),
            a.rank());
  TBX_MODEL(ctx.dtype(1) == DType::u8, "B is of type {}, expected uint8", name_of(ctx.dtype(1)));
  TBX_MODEL(is_float(ctx.dtype(2)), "absmax is of type {}", name_of(ctx.dtype(2)));
  check_count(ctx, 1, "B", f.bytes());
  check_count(ctx, 2, "absmax", f.blocks());
  TensorBox b = matrix(ctx, f);
  if (transposed) b = ir::permute(ctx.program, b, std::vector<int>{1, 0});
  return {convert(ctx, matmul_boxes(ctx, convert(ctx, a, DType::f32), b, DType::f32), a.dtype())};
}

} // namespace

void register_matmul_bnb4(Registry& r) {
  r.add("MatMulBnb4", since(1), matmul_bnb4, "com.microsoft");
  r.type_from(0, {"MatMulBnb4"}, "com.microsoft");
}

} // namespace tbx::lowering
