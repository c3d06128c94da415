// Integers of 2, 4 or 8 bits packed into bytes, the first of a byte in its lowest bits.
#pragma once

#include <fmt/format.h>

#include "lowering/op_helpers.h"

namespace tbx::lowering {

/// Element `at` (in elements along the last dimension, which counts bytes in `bytes`) in i32. With
/// `shifted` it has half its range subtracted.
inline Expr packed_element(ir::Program& p, const TensorBox& bytes, SymInts at, int64_t bits, bool shifted) {
  ir::Context& c = *p.context;
  const int64_t per_byte = 8 / bits;
  SymInt element = at.back();
  at.back() = ir::floordiv(element, per_byte);
  Expr byte = c.cast(bytes.load(p, at), DType::i32);
  if (per_byte > 1) {
    Expr shift = c.cast(c.index(ir::mod(element, per_byte) * SymInt(bits)), DType::i32);
    byte = ir::binary(Op::bitwise_and, ir::binary(Op::shift_right, byte, shift),
                      c.constant_int(DType::i32, (int64_t{1} << bits) - 1));
  }
  return shifted ? ir::sub(byte, c.constant_int(DType::i32, int64_t{1} << (bits - 1))) : byte;
}

/// ModelError unless input `i`, called `name`, has `count` elements.
inline void check_count(OpContext& ctx, int i, const char* name, int64_t count) {
  SymInt have = ir::product(ctx.sizes(i));
  TBX_MODEL(!have.is_constant() || have.is(count), "{} has {} elements, expected {}", name, have.constant(),
            count);
  ctx.program.add_check(have - SymInt(count), true,
                        fmt::format("{}: {} needs {} elements", ctx.node.op_type, name, count));
}

} // namespace tbx::lowering
