#include "base/float_formats.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tbx {
namespace {

/// A binary floating format of up to 16 bits.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity;  ///< all-ones exponent with zero mantissa
  bool all_ones_is_nan;  ///< fn formats: only the all-ones pattern is NaN, other all-ones exponents are numbers
  bool negative_zero_is_nan;  ///< fnuz formats: 0x80 is the one NaN, there is no -0
};

Format format_of(DType t) {
  switch (t) {
    case DType::f16: return {5, 10, 15, true, false, false};
    case DType::bf16: return {8, 7, 127, true, false, false};
    case DType::f8e4m3fn: return {4, 3, 7, false, true, false};
    case DType::f8e4m3fnuz: return {4, 3, 8, false, false, true};
    case DType::f8e5m2: return {5, 2, 15, true, false, false};
    case DType::f8e5m2fnuz: return {5, 2, 16, false, false, true};
    case DType::f4e2m1: return {2, 1, 1, false, false, false};
    default: break;
  }
  throw_internal_error("not a narrow float format", __FILE__, __LINE__);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

uint32_t sign_bit(const Format& f) { return 1u << (f.exponent_bits + f.mantissa_bits); }

/// Bits of the largest finite magnitude.
uint32_t largest(const Format& f) {
  uint32_t all = sign_bit(f) - 1;
  if (f.has_infinity) return all - (1u << f.mantissa_bits);
  return f.all_ones_is_nan ? all - 1 : all;
}

float decode(const Format& f, uint32_t bits) {
  uint32_t sign = sign_bit(f), magnitude = bits & (sign - 1);
  if (f.negative_zero_is_nan && bits == sign) return kNaN;
  if (f.all_ones_is_nan && magnitude == sign - 1) return kNaN;
  uint32_t exponent = magnitude >> f.mantissa_bits, mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  float value;
  if (f.has_infinity && exponent == (1u << f.exponent_bits) - 1) {
    value = mantissa ? kNaN : kInf;
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - f.bias - f.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<float>(mantissa | (1u << f.mantissa_bits)),
                       static_cast<int>(exponent) - f.bias - f.mantissa_bits);
  }
  return bits & sign ? -value : value;
}

uint32_t nan_bits(DType t, const Format& f) {
  if (f.negative_zero_is_nan) return sign_bit(f);
  if (f.all_ones_is_nan) return sign_bit(f) - 1;
  if (!f.has_infinity) return 0;  // f4e2m1 has no NaN
  return ((1u << f.exponent_bits) - 1) << f.mantissa_bits | (t == DType::f8e5m2 ? 3u : 1u << (f.mantissa_bits - 1));
}

uint32_t encode(DType t, const Format& f, float value, bool saturate) {
  uint32_t sign = std::signbit(value) ? sign_bit(f) : 0;
  if (std::isnan(value)) {
    if (f.has_infinity) return nan_bits(t, f) | sign;
    return f.negative_zero_is_nan ? nan_bits(t, f) : nan_bits(t, f) | sign;
  }
  bool wide = t == DType::f16 || t == DType::bf16;
  auto overflow = [&]() -> uint32_t {
    if (wide || (!saturate && f.has_infinity)) return sign | ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    if (saturate || t == DType::f4e2m1) return sign | largest(f);
    return f.negative_zero_is_nan ? nan_bits(t, f) : sign | nan_bits(t, f);
  };
  if (std::isinf(value)) return overflow();
  float magnitude = std::fabs(value);
  if (magnitude == 0) return f.negative_zero_is_nan ? 0 : sign;
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  int unit = std::max(exponent - 1, 1 - f.bias) - f.mantissa_bits;  // exponent of the last mantissa bit
  // Exact in double; nearbyint rounds halves to even.
  double steps = std::nearbyint(std::ldexp(static_cast<double>(magnitude), -unit));
  double rounded = std::ldexp(steps, unit);
  if (rounded > static_cast<double>(decode(f, largest(f)))) return overflow();
  if (rounded == 0) return f.negative_zero_is_nan ? 0 : sign;
  std::frexp(rounded, &exponent);
  int biased = exponent - 1 + f.bias;
  uint32_t bits;
  if (biased <= 0) {
    bits = static_cast<uint32_t>(std::ldexp(rounded, f.bias - 1 + f.mantissa_bits));
  } else {
    auto mantissa = static_cast<uint32_t>(std::ldexp(rounded, f.mantissa_bits - (exponent - 1)));
    bits = static_cast<uint32_t>(biased) << f.mantissa_bits | (mantissa & ((1u << f.mantissa_bits) - 1));
  }
  return sign | bits;
}

/// E8M0 holds powers of two: rounds half up to the next exponent as ONNX Cast does by default.
uint32_t encode_e8m0(float value, bool saturate) {
  uint32_t u = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return 0xFF;
  if (std::isinf(value)) return saturate ? 0xFE : 0xFF;
  uint32_t exponent = (u >> 23) & 0xFF, mantissa = u & 0x7FFFFF;
  if (exponent == 0xFE) return mantissa >= 0x400000 ? (saturate ? 0xFE : 0xFF) : 0xFE;
  if (exponent == 0) return mantissa > 0x400000 ? 1 : 0;
  return exponent + (mantissa >= 0x400000);
}

}  // namespace

float decode_float(DType type, uint32_t bits) {
  if (type == DType::bf16) return std::bit_cast<float>(bits << 16);
  if (type == DType::f8e8m0)
    return bits == 0xFF ? kNaN : std::ldexp(1.0f, static_cast<int>(bits) - 127);
  return decode(format_of(type), bits);
}

uint32_t encode_float(DType type, float value, bool saturate) {
  if (type == DType::f8e8m0) return encode_e8m0(value, saturate);
  return encode(type, format_of(type), value, saturate);
}

}  // namespace tbx
