// com.microsoft MatMulNBits: a product with a matrix that is stored as small integers with a scale per block.
#include <algorithm>
#include <limits>

#include "lowering/ops/families.h"
#include "lowering/ops/host_call.h"
#include "lowering/ops/microsoft/packed_integers.h"
#include "lowering/ops/products.h"

namespace tbx::lowering {
namespace {

struct Form {
  int64_t k, n, bits, block;
  int64_t blocks() const { return (k + block - 1) / block; }
  int64_t zero_bytes() const { return (blocks() * bits + 7) / 8; } ///< of a column's packed zero points
};

Form form_of(OpContext& ctx) {
  Form f{ctx.required_int("K"), ctx.required_int("N"), ctx.attr_int("bits", 4),
         ctx.required_int("block_size")};
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  TBX_MODEL(f.k >= 1 && f.k <= kMost && f.n >= 1 && f.n <= kMost, "K is {} and N is {}", f.k, f.n);
  TBX_MODEL(f.bits == 2 || f.bits == 4 || f.bits == 8, "bits is {}, expected 2, 4 or 8", f.bits);
  TBX_MODEL(f.block >= 16 && f.block <= kMost && (f.block & (f.block - 1)) == 0,
            "block_size is {}, expected a power of two of at least 16", f.block);
  TBX_MODEL(ctx.attr_int("weight_prepacked", 0) == 0, "weight_prepacked is {}: only plain weights are read",
            ctx.attr_int("weight_prepacked", 0));
  return f;
}

/// Whether the group of every row is the block it lies in, so that g_idx says nothing.
bool is_plain(const Tensor* groups, const Form& f) {
  if (!groups) return false;
  for (int64_t i = 0; i < f.k; ++i)
    if (element_as_int(*groups, i) != i / f.block) return false;
  return true;
}

/// The matrix [K, N] in f32, row i scaled as group `group(i)` says.
TensorBox dequantized(OpContext& ctx, const Form& f, const std::function<SymInt(SymInt)>& group) {
  ir::Program& p = ctx.program;
  SymInt blob = f.block / 8 * f.bits;
  TensorBox bytes = ir::reshape(p, ctx.in(1), {f.n, SymInt(f.blocks()) * blob});
  TensorBox scales = ir::reshape(p, ctx.in(2), {f.n, f.blocks()}), zeros;
  const bool packed = ctx.has(3) && ctx.dtype(3) == DType::u8;
  if (ctx.has(3)) zeros = ir::reshape(p, ctx.in(3), {f.n, packed ? f.zero_bytes() : f.blocks()});
  return generate(ctx, DType::f32, {f.k, f.n}, [&](std::span<const SymInt> at) {
    SymInt g = group(at[0]);
    const SymInt scale_at[] = {at[1], g};
    Expr zero = ctx.c.constant(DType::f32, static_cast<double>(int64_t{1} << (f.bits - 1)));
    if (packed)
      zero = to_compute(packed_element(p, zeros, {at[1], g}, f.bits, false), DType::f32);
    else if (zeros.defined())
      zero = to_compute(zeros.load(p, scale_at), DType::f32);
    Expr q = to_compute(packed_element(p, bytes, {at[1], at[0]}, f.bits, false), DType::f32);
    return ir::mul(ir::sub(q, zero), to_compute(scales.load(p, scale_at), DType::f32));
  });
}

std::vector<LoweredValue> matmul_nbits(OpContext& ctx) {
  const TensorBox& a = ctx.in(0);
  Form f = form_of(ctx);
  TBX_MODEL(a.rank() >= 1, "A is a scalar");
  TBX_MODEL(is_float(a.dtype()), "A is of type {}", name_of(a.dtype()));
  TBX_MODEL(ctx.dtype(1) == DType::u8, "B is of type {}, expected uint8", name_of(ctx.dtype(1)));
  TBX_MODEL(is_float(ctx.dtype(2)), "scales are of type {}", name_of(ctx.dtype(2)));
  SymInt inner = a.sizes().back();
  TBX_MODEL(!inner.is_constant() || inner.is(f.k), "A has {} columns, K is {}", inner.constant(), f.k);
  ctx.program.add_check(inner - SymInt(f.k), true, "MatMulNBits: the last dimension of A is not K");
  check_count(ctx, 1, "B", f.n * f.blocks() * (f.block / 8 * f.bits));
  check_count(ctx, 2, "scales", f.n * f.blocks());
  if (ctx.has(3)) {
    bool packed = ctx.dtype(3) == DType::u8;
    TBX_MODEL(packed || is_float(ctx.dtype(3)), "zero_points are of type {}", name_of(ctx.dtype(3)));
    check_count(ctx, 3, "zero_points", f.n * (packed ? f.zero_bytes() : f.blocks()));
  }
  // Groups may be given for the rows that fill the last block, too: nobody reads those.
  const SymInt grouped = ctx.has(4) ? ir::product(ctx.sizes(4)) : f.k;
  TBX_MODEL(!grouped.is_constant() || grouped.is(f.k) || grouped.is(f.blocks() * f.block),
            "g_idx has {} elements, expected {}", grouped.constant(), f.k);
  ctx.program.add_check(grouped - SymInt(f.k), false, "MatMulNBits: g_idx has fewer elements than K");
  if (ctx.has(5)) check_count(ctx, 5, "bias", f.n);
  const int64_t level = ctx.attr_int("accuracy_level", 0);
  TBX_MODEL(level >= 0 && level <= 4, "accuracy_level is {}, expected 0 to 4", level);

  SymInts sizes = a.sizes();
  sizes.back() = f.n;
  std::span<const SymInt> outer(a.sizes().data(), a.sizes().size() - 1);
  SymInt rows = ir::product(outer);
  TensorBox x = ir::reshape(ctx.program, convert(ctx, a, DType::f32), {rows, f.k});
  std::optional<TensorBox> bias;
  if (ctx.has(5)) bias = ir::reshape(ctx.program, convert(ctx, ctx.in(5), DType::f32), {f.n});
  TensorBox y;
  if (ctx.has(4) && !is_plain(ctx.constant(4).get(), f)) {
    TensorBox groups = ir::reshape(ctx.program, ctx.in(4), {grouped});
    TensorBox w = dequantized(ctx, f, [&](SymInt row) {
      Expr group = groups.load(ctx.program, {&row, 1});
      return ctx.c.indirect(ctx.c.cast(group, DType::i64), f.blocks());
    });
    y = matrix_product(ctx, x, w, bias ? &*bias : nullptr, 1, 1, DType::f32);
  } else {
    std::vector<std::optional<TensorBox>> inputs{x, ctx.in(1), ctx.in(2), std::nullopt, bias};
    if (ctx.has(3)) inputs[3] = ctx.in(3);
    const extern_kernels::PackedMatMulProblem product{f.k, f.n, f.block, static_cast<int>(f.bits),
                                                      level == 4};
    y = typed_call(ctx, inputs, {{DType::f32, {rows, f.n}}}, product).at(0).tensor;
  }
  return {convert(ctx, ir::reshape(ctx.program, y, sizes), a.dtype())};
}

} // namespace

void register_matmul_nbits(Registry& r) {
  r.add("MatMulNBits", since(1), matmul_nbits, "com.microsoft");
  r.type_from(0, {"MatMulNBits"}, "com.microsoft");
}

} // namespace tbx::lowering
