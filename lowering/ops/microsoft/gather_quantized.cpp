// com.microsoft GatherBlockQuantized: slices of a tensor of small integers, each block with a scale of its
// own.
#include "lowering/ops/families.h"
#include "lowering/ops/microsoft/packed_integers.h"

namespace tbx::lowering {
namespace {

struct Form {
  int gather_axis = 0, quantize_axis = 0;
  int64_t block = 0; ///< 0: the whole axis
  int64_t bits = 0;  ///< of integers packed into bytes; 0: one element per element
};

Form form_of(OpContext& ctx) {
  const DType type = ctx.dtype(0);
  const bool floats = is_low_precision_float(type);
  TBX_MODEL(floats || type == DType::i4 || type == DType::u4 || type == DType::u8, "data is of type {}",
            name_of(type));
  Form f;
  f.gather_axis = ctx.axis(ctx.attr_int("gather_axis", 0), ctx.rank(0));
  f.quantize_axis = ctx.axis(ctx.attr_int("quantize_axis", 1), ctx.rank(0));
  f.block = ctx.attr_int("block_size", 128);
  TBX_MODEL((floats && f.block == 0) || (f.block >= 16 && (f.block & (f.block - 1)) == 0),
            "block_size is {}, expected a power of two of at least 16", f.block);
  if (type == DType::u8) {
    f.bits = ctx.attr_int("bits", 4);
    TBX_MODEL(f.bits == 2 || f.bits == 4 || f.bits == 8, "bits is {}, expected 2, 4 or 8", f.bits);
    TBX_MODEL(f.quantize_axis == ctx.rank(0) - 1, "quantize_axis is {} for packed data of rank {}",
              f.quantize_axis, ctx.rank(0));
    TBX_MODEL(f.bits == 8 || f.gather_axis != f.quantize_axis, "gather_axis {} is the axis of packed data",
              f.gather_axis);
  }
  TBX_MODEL(!floats || !ctx.has(3), "zero_points are given for data of type {}", name_of(type));
  return f;
}

/// The shape of the data in elements.
SymInts element_sizes(OpContext& ctx, const Form& f) {
  SymInts sizes = ctx.sizes(0);
  if (f.bits) sizes.back() = sizes.back() * SymInt(8 / f.bits);
  return sizes;
}

/// What scales (or zero points, `what`) must be as large as.
void check_sizes(OpContext& ctx, const char* what, const SymInts& have, const SymInts& want, bool repeated) {
  TBX_MODEL(have.size() == want.size(), "{} have rank {}, data has {}", what, have.size(), want.size());
  for (size_t d = 0; d < want.size(); ++d) {
    if (repeated && have[d].is(1)) continue;
    TBX_MODEL(!have[d].is_constant() || !want[d].is_constant() || have[d] == want[d],
              "{} have size {} along dimension {}, expected {}", what, have[d].constant(), d,
              want[d].constant());
    ctx.program.add_check(
        have[d] - want[d], true,
        fmt::format("GatherBlockQuantized: {} have a wrong size along dimension {}", what, d));
  }
}

std::vector<LoweredValue> gather_block_quantized(OpContext& ctx) {
  const TensorBox &data = ctx.in(0), &indices = ctx.in(1), &scales = ctx.in(2);
  TBX_MODEL(data.rank() >= 1, "data is a scalar");
  Form f = form_of(ctx);
  TBX_MODEL(is_integer(indices.dtype()), "indices are of type {}", name_of(indices.dtype()));
  const bool floats = is_low_precision_float(data.dtype());
  SymInts elements = element_sizes(ctx, f), blocks = elements;
  SymInt& along = blocks[f.quantize_axis];
  along = f.block ? ir::ceildiv(along, f.block) : SymInt(1);
  check_sizes(ctx, "scales", scales.sizes(), blocks, floats);
  if (ctx.has(3)) {
    SymInts want = blocks;
    if (f.bits) want.back() = ir::ceildiv(want.back(), 8 / f.bits);
    check_sizes(ctx, "zero_points", ctx.sizes(3), want, false);
    TBX_MODEL(ctx.dtype(3) == data.dtype(), "zero_points are of type {}, data of {}", name_of(ctx.dtype(3)),
              name_of(data.dtype()));
  }

  const int q = indices.rank();
  SymInts sizes(elements.begin(), elements.begin() + f.gather_axis);
  sizes.insert(sizes.end(), indices.sizes().begin(), indices.sizes().end());
  sizes.insert(sizes.end(), elements.begin() + f.gather_axis + 1, elements.end());
  SymInt extent = elements[f.gather_axis];
  ir::Program& p = ctx.program;
  ir::Context& c = ctx.c;
  TBX_MODEL(!extent.is(0) || ir::product(sizes).is(0), "an axis without elements cannot be gathered from");
  return {generate(ctx, scales.dtype(), sizes, [&](std::span<const SymInt> out) {
    Expr index = c.cast(indices.load(p, out.subspan(f.gather_axis, q)), DType::i64);
    Expr size = c.index(extent);
    index = ir::where(ir::binary(Op::less, index, number(index, 0)), ir::add(index, size), index);
    // Slices that do not exist are 0.
    Expr exists = ir::binary(Op::logical_and, ir::binary(Op::greater_equal, index, number(index, 0)),
                             ir::binary(Op::less, index, size));
    SymInts at(out.begin(), out.begin() + f.gather_axis);
    at.push_back(c.indirect(ir::where(exists, index, number(index, 0)), extent, false));
    at.insert(at.end(), out.begin() + f.gather_axis + q, out.end());
    SymInts block = at;
    block[f.quantize_axis] = f.block ? ir::floordiv(at[f.quantize_axis], f.block) : SymInt(0);
    SymInts scale_at = block;
    for (int d = 0; d < scales.rank(); ++d)
      if (scales.sizes()[d].is(1)) scale_at[d] = 0;
    Expr scale = to_compute(scales.load(p, scale_at), DType::f32), value;
    if (floats) {
      value = to_compute(data.load(p, at), DType::f32);
    } else {
      value = f.bits ? packed_element(p, data, at, f.bits, false) : c.cast(data.load(p, at), DType::i32);
      Expr zero = c.constant_int(DType::i32, f.bits ? int64_t{1} << (f.bits - 1) : 0);
      if (ctx.has(3))
        zero = f.bits ? packed_element(p, ctx.in(3), block, f.bits, false)
                      : c.cast(ctx.in(3).load(p, block), DType::i32);
      value = c.cast(ir::sub(value, zero), DType::f32);
    }
    return ir::where(exists, rounded(ir::mul(value, scale), scales.dtype()), number(scale, 0));
  })};
}

} // namespace

void register_gather_quantized(Registry& r) {
  r.add("GatherBlockQuantized", since(1), gather_block_quantized, "com.microsoft");
  r.type_from(2, {"GatherBlockQuantized"}, "com.microsoft");
  r.need("GatherBlockQuantized", 1, index_into(0, "gather_axis", 0), "com.microsoft");
}

} // namespace tbx::lowering
