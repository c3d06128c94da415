// com.microsoft MurmurHash3 of numbers (MurmurHash3_x86_32 of their bytes).
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

Expr rotated(Expr x, int bits) {
  Expr left = ir::binary(Op::shift_left, x, number(x, bits));
  return ir::binary(Op::bitwise_or, left, ir::binary(Op::shift_right, x, number(x, 32 - bits)));
}

Expr mixed(Expr h, Expr block) {
  auto n = [&](uint32_t v) { return number(h, v); };
  Expr k = ir::mul(rotated(ir::mul(block, n(0xcc9e2d51)), 15), n(0x1b873593));
  h = rotated(ir::binary(Op::bitwise_xor, h, k), 13);
  return ir::add(ir::mul(h, n(5)), n(0xe6546b64));
}

Expr finished(Expr h) {
  auto n = [&](uint32_t v) { return number(h, v); };
  auto fold = [&](Expr e, int bits) {
    return ir::binary(Op::bitwise_xor, e, ir::binary(Op::shift_right, e, n(bits)));
  };
  h = ir::mul(fold(h, 16), n(0x85ebca6b));
  return fold(ir::mul(fold(h, 13), n(0xc2b2ae35)), 16);
}

Values murmur_hash3(OpContext& ctx) {
  DType from = ctx.dtype(0), to = ctx.attr_int("positive", 1) ? DType::u32 : DType::i32;
  int bits = bits_of(from);
  TBX_MODEL((is_integer(from) || is_float(from)) && (bits == 32 || bits == 64),
            "X is of type {}, expected a number of 32 or 64 bits", name_of(from));
  auto seed = static_cast<uint32_t>(ctx.attr_int("seed", 0));
  return {map(ctx, to, ctx.in(0), [&](Expr x) {
    Expr h = ctx.c.constant_int(DType::u32, seed);
    if (bits == 32) {
      h = mixed(h, ctx.c.bitcast(x, DType::u32));
    } else {
      Expr whole = ctx.c.bitcast(x, DType::u64);
      h = mixed(h, ctx.c.cast(ir::binary(Op::bitwise_and, whole, ctx.c.constant_int(DType::u64, 0xffffffff)),
                              DType::u32));
      h = mixed(
          h, ctx.c.cast(ir::binary(Op::shift_right, whole, ctx.c.constant_int(DType::u64, 32)), DType::u32));
    }
    h = finished(ir::binary(Op::bitwise_xor, h, ctx.c.constant_int(DType::u32, bits / 8)));
    return to == DType::u32 ? h : ctx.c.bitcast(h, DType::i32);
  })};
}

} // namespace

void register_murmur_hash(Registry& r) {
  const char* const domain = "com.microsoft";
  r.add("MurmurHash3", since(1), murmur_hash3, domain);
}

} // namespace tbx::lowering
