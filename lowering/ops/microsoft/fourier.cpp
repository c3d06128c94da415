// com.microsoft operators on complex numbers: products and Fourier transforms.
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// Pairs (real, imaginary) along the last dimension; B may be conjugated.
LowerFn complex_mul(bool conjugate) {
  return [conjugate](OpContext& ctx) -> Values {
    const TensorBox &a = ctx.in(0), &b = ctx.in(1);
    for (const TensorBox* x : {&a, &b}) {
      TBX_MODEL(x->rank() >= 1, "an operand has rank 0");
      ctx.program.add_check(x->sizes().back() - SymInt(2), true,
                            ctx.node.op_type + ": the last dimension is not 2");
    }
    auto part = [&](const TensorBox& x, int k) { return ir::slice(ctx.program, x, x.rank() - 1, k, 1, 1); };
    const TensorBox xs[] = {part(a, 0), part(a, 1), part(b, 0), part(b, 1)};
    DType type = compute_type(a.dtype());
    auto sign = [&](Expr e) { return conjugate ? ir::unary(Op::neg, e) : e; };
    TensorBox real = map(ctx, type, xs, [&](std::span<const Expr> v) {
      return ir::sub(ir::mul(v[0], v[2]), ir::mul(v[1], sign(v[3])));
    });
    TensorBox imaginary = map(ctx, type, xs, [&](std::span<const Expr> v) {
      return ir::add(ir::mul(v[0], sign(v[3])), ir::mul(v[1], v[2]));
    });
    SymInts sizes = real.sizes();
    sizes.back() = 2;
    return {generate(ctx, a.dtype(), sizes, [&](std::span<const SymInt> at) {
      SymInts from(at.begin(), at.end());
      from.back() = 0;
      Expr first = ir::binary(Op::equal, ctx.c.index(at.back()), ctx.c.constant_int(DType::i64, 0));
      return ir::where(first, real.load(ctx.program, from), imaginary.load(ctx.program, from));
    })};
  };
}

// --- Fourier transforms of one to three trailing dimensions

TensorBox dft(OpContext& ctx, const TensorBox& x, int axis, bool inverse, bool onesided) {
  return ctx.box(
      lower_as(ctx, "DFT", 17, {x},
               {{"axis", int64_t{axis}}, {"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}})[0]);
}

int signal_dimensions(OpContext& ctx, int rank) {
  TBX_MODEL(ctx.attr_int("onesided", 1) == 1, "onesided must be 1");
  TBX_MODEL(ctx.attr_int("normalized", 0) == 0, "normalized must be 0");
  int64_t n = ctx.attr_int("signal_ndim", 1);
  TBX_MODEL(n >= 1 && n <= 3 && n <= rank, "signal_ndim is {} for data of rank {}", n, rank);
  return static_cast<int>(n);
}

/// x [..., n] -> [..., n / 2 + 1, 2]
Values rfft(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  int rank = x.rank(), n = signal_dimensions(ctx, rank);
  TensorBox y = dft(ctx, ir::unsqueeze(ctx.program, x, std::vector<int>{rank}), rank - 1, false, true);
  for (int k = 2; k <= n; ++k) y = dft(ctx, y, rank - k, false, false);
  return {y};
}

/// x [..., m, 2] -> [..., 2 * (m - 1)]
Values irfft(OpContext& ctx) {
  TensorBox x = ctx.in(0);
  int rank = x.rank() - 1;
  TBX_MODEL(rank >= 1, "the input has rank {}, expected at least 2", rank + 1);
  int n = signal_dimensions(ctx, rank);
  for (int k = n; k >= 2; --k) x = dft(ctx, x, rank - k, true, false);
  TensorBox y = dft(ctx, x, rank - 1, true, true);
  return {ir::squeeze(ctx.program, y, std::vector<int>{rank})};
}

} // namespace

void register_fourier(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("ComplexMul", since(1), complex_mul(false), domain);
  r.add("ComplexMulConj", since(1), complex_mul(true), domain);
  r.add("Rfft", since(1), rfft, domain);
  r.add("Irfft", since(1), irfft, domain);
  r.type_from(0, {"ComplexMul", "ComplexMulConj", "Rfft", "Irfft"}, domain);
}

} // namespace tbx::lowering
