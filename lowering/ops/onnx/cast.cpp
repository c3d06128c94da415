// Cast, CastLike and BitCast between all numeric types.
#include "lowering/ops/onnx/cast.h"

#include <cmath>
#include <limits>

#include "lowering/lower.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

/// f32 -> the power of two that f8e8m0 holds for it, as f32.
Expr to_e8m0(Expr x, bool saturate, const std::string& round_mode) {
  ir::Context& c = *x->context;
  auto u32 = [&](int64_t v) { return c.constant_int(DType::u32, v); };
  Expr bits = ir::binary(Op::bitwise_and, c.bitcast(x, DType::u32), u32(0x7fffffff));
  Expr exponent = ir::binary(Op::shift_right, bits, u32(23)),
       fraction = ir::binary(Op::bitwise_and, bits, u32(0x7fffff));
  // Below 2^-126 floats are denormal: 2^-127 is fraction 0x400000 of exponent 0.
  Expr denormal = ir::binary(Op::equal, exponent, u32(0));
  Expr limit_normal = u32(round_mode == "up" ? 1 : round_mode == "nearest" ? 0x400000 : 0x800000);
  Expr limit_denormal = u32(round_mode == "up" ? 0x400001 : round_mode == "nearest" ? 0x600000 : 0x800000);
  Expr up = ir::binary(Op::greater_equal, fraction, ir::where(denormal, limit_denormal, limit_normal));
  Expr rounded_exponent = ir::add(exponent, c.cast(up, DType::u32));
  Expr value = c.bitcast(ir::binary(Op::shift_left, rounded_exponent, u32(23)), DType::f32);
  Expr least = c.constant(DType::f32, std::ldexp(1.0, -127)),
       greatest = c.constant(DType::f32, std::ldexp(1.0, 127));
  Expr nan = c.constant(DType::f32, std::numeric_limits<double>::quiet_NaN());
  value = ir::where(ir::binary(Op::equal, rounded_exponent, u32(0)), least, value);
  Expr too_large = ir::binary(Op::greater_equal, rounded_exponent, u32(255));
  value = ir::where(too_large, saturate ? greatest : nan, value);
  if (!saturate) value = ir::where(ir::binary(Op::less, ir::unary(Op::abs, x), least), nan, value);
  return ir::where(ir::unary(Op::is_nan, x), nan, value);
}

/// Keeps the low bits of an 8-bit integer, with the sign of the highest of them.
Expr wrap_sub_byte(Expr x, DType to) {
  int bits = bits_of(to);
  if (!is_signed(to)) return ir::binary(Op::bitwise_and, x, number(x, (1 << bits) - 1));
  Expr shift = number(x, 8 - bits);
  return ir::binary(Op::shift_right, ir::binary(Op::shift_left, x, shift), shift);
}

std::vector<LoweredValue> cast_to(OpContext& ctx, DType to) {
  if (to == DType::string || is_complex(to)) throw_unsupported("a cast to {}", name_of(to));
  const TensorBox& x = ctx.in(0);
  if (x.dtype() == to) return {x};
  if (is_half(to) && x.dtype() == DType::f32 && x.storage()->is_realized() &&
      ir::memory_type(ctx.program, x) == to) { // memory holds it so
    const TensorBox whole = ir::make_buffer_box(ctx.program, x.storage()->buffer());
    return {x.is_identity_view() ? whole : whole.view(ctx.c, x.sizes(), x.index_map())};
  }
  bool saturate = ctx.attr_int("saturate", 1) != 0;
  std::string round_mode = ctx.attr_string("round_mode", "up");
  return {map(ctx, to, x, [&](Expr e) { return cast_element(e, to, saturate, round_mode); })};
}

std::vector<LoweredValue> lower_cast(OpContext& ctx) {
  if (ctx.opset() >= 6) {
    TBX_MODEL(ctx.has_attr("to"), "attribute 'to' is missing");
    return cast_to(ctx, ctx.attr_dtype("to", DType::undefined));
  }
  std::string name = ctx.attr_string("to", ""); // opset 1 spells types as words
  for (char& ch : name) ch = static_cast<char>(std::tolower(ch));
  if (name == "float") name = "float32";
  if (name == "double") name = "float64";
  auto to = dtype_from_name(name);
  TBX_MODEL(to.has_value(), "'{}' is no data type", name);
  return cast_to(ctx, *to);
}

// --- BitCast

constexpr double kF16Denormal = 0x1p-24;

Expr f16_bits(Expr x) {
  ir::Context& c = *x->context;
  auto u32 = [&](int64_t v) { return c.constant_int(DType::u32, v); };
  Expr bits = c.bitcast(x, DType::u32),
       sign = ir::binary(Op::bitwise_and, ir::binary(Op::shift_right, bits, u32(16)), u32(0x8000));
  Expr magnitude = ir::binary(Op::bitwise_and, bits, u32(0x7fffffff));
  Expr normal = ir::binary(Op::shift_right, ir::sub(magnitude, u32(112 << 23)), u32(13));
  Expr special = ir::add(
      u32(0x7c00), ir::binary(Op::shift_right, ir::binary(Op::bitwise_and, bits, u32(0x7fffff)), u32(13)));
  Expr denormal = c.cast(ir::mul(ir::unary(Op::abs, x), number(x, 1 / kF16Denormal)), DType::u32);
  Expr out = ir::where(ir::binary(Op::less, magnitude, u32(113 << 23)), denormal, normal);
  out = ir::where(ir::binary(Op::greater_equal, magnitude, u32(255 << 23)), special, out);
  return c.cast(ir::binary(Op::bitwise_or, sign, out), DType::u16);
}

Expr f16_from_bits(Expr u16) {
  ir::Context& c = *u16->context;
  auto u32 = [&](int64_t v) { return c.constant_int(DType::u32, v); };
  Expr bits = c.cast(u16, DType::u32), magnitude = ir::binary(Op::bitwise_and, bits, u32(0x7fff));
  Expr sign = ir::binary(Op::shift_left, ir::binary(Op::bitwise_and, bits, u32(0x8000)), u32(16));
  Expr wide = ir::binary(Op::shift_left, magnitude, u32(13));
  Expr normal = ir::add(wide, u32(112 << 23)), special = ir::binary(Op::bitwise_or, wide, u32(255 << 23));
  Expr small = c.cast(magnitude, DType::f32);
  Expr denormal = c.bitcast(ir::mul(small, number(small, kF16Denormal)), DType::u32);
  Expr out = ir::where(ir::binary(Op::less, magnitude, u32(0x400)), denormal, normal);
  out = ir::where(ir::binary(Op::greater_equal, magnitude, u32(0x7c00)), special, out);
  return c.bitcast(ir::binary(Op::bitwise_or, out, sign), DType::f32);
}

/// The stored bits of a value as an integer of its storage width.
Expr bits_of_value(Expr x, DType type) {
  ir::Context& c = *x->context;
  switch (type) {
  case DType::f16: return f16_bits(c.round_to(x, type));
  case DType::bf16: {
    Expr bits = c.bitcast(c.round_to(x, type), DType::u32);
    return c.cast(ir::binary(Op::shift_right, bits, c.constant_int(DType::u32, 16)), DType::u16);
  }
  case DType::boolean: return c.cast(x, DType::u8);
  default: return is_low_precision_float(type) ? nullptr : x;
  }
}

Expr value_of_bits(Expr x, DType type) {
  ir::Context& c = *x->context;
  switch (type) {
  case DType::f16: return f16_from_bits(c.bitcast(x, DType::u16));
  case DType::bf16: {
    Expr wide = c.cast(c.bitcast(x, DType::u16), DType::u32);
    return c.bitcast(ir::binary(Op::shift_left, wide, c.constant_int(DType::u32, 16)), DType::f32);
  }
  case DType::boolean: return to_compute(x, type);
  default: {
    if (is_low_precision_float(type)) return nullptr;
    Expr seen = c.bitcast(x, compute_type(type));
    return bits_of(type) < 8 ? wrap_sub_byte(seen, type) : seen;
  }
  }
}

std::vector<LoweredValue> lower_bit_cast(OpContext& ctx) {
  const TensorBox& x = ctx.in(0);
  DType from = x.dtype(), to = ctx.attr_dtype("to", DType::undefined);
  TBX_MODEL(bits_of(from) == bits_of(to), "a bit cast from {} to {}", name_of(from), name_of(to));
  if (from == to) return {x};
  return {map(ctx, to, x, [&](Expr e) {
    Expr bits = bits_of_value(e, from);
    Expr out = bits ? value_of_bits(bits, to) : nullptr;
    if (!out) ask_for_run(fmt::format("a bit cast from {} to {}", name_of(from), name_of(to)));
    return out;
  })};
}

} // namespace

Expr cast_element(Expr x, DType to, bool saturate, const std::string& round_mode) {
  ir::Context& c = *x->context;
  if (to == DType::f8e8m0) return to_e8m0(to_compute(x, DType::f32), saturate, round_mode);
  if (is_low_precision_float(to)) return c.round_to(to_compute(x, DType::f32), to, saturate);
  if (!is_integer(to) || bits_of(to) >= 8) return to_compute(x, to);
  return wrap_sub_byte(to_compute(to_compute(x, DType::i32), to), to);
}

void register_cast(Registry& r) {
  r.add("Cast", since(1), lower_cast);
  r.add("CastLike", since(15), [](OpContext& ctx) { return cast_to(ctx, ctx.dtype(1)); });
  r.add("BitCast", since(26), lower_bit_cast);
  r.mark(Trait::recasts, {"BitCast"});
  r.mark(Trait::elementwise, {"Cast"});
  r.mark(Trait::keeps_first, {"Cast", "CastLike"});
  r.mark(Trait::takes_quotients, {"Cast", "CastLike"});
}

} // namespace tbx::lowering
