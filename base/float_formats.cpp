#include "base/float_formats.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/widen_f16.h"

namespace tbx {
namespace {

/// A binary floating format of up to 16 bits.
struct Format {
  int exponent_bits, mantissa_bits, bias;
  bool has_infinity; ///< all-ones exponent with zero mantissa
  bool
      all_ones_is_nan; ///< fn formats: only the all-ones pattern is NaN, other all-ones exponents are numbers
  bool negative_zero_is_nan; ///< fnuz formats: 0x80 is the one NaN, there is no -0
  bool is_wide = false;      ///< f16, bf16: overflow to infinity, whatever `saturate` says
};

Format format_of(DType t) {
  switch (t) {
  case DType::f16: return {5, 10, 15, true, false, false, true};
  case DType::bf16: return {8, 7, 127, true, false, false, true};
  case DType::f8e4m3fn: return {4, 3, 7, false, true, false};
  case DType::f8e4m3fnuz: return {4, 3, 8, false, false, true};
  case DType::f8e5m2: return {5, 2, 15, true, false, false};
  case DType::f8e5m2fnuz: return {5, 2, 16, false, false, true};
  case DType::f4e2m1: return {2, 1, 1, false, false, false};
  case DType::f6e2m3: return {2, 3, 1, false, false, false};
  case DType::f6e3m2: return {3, 2, 3, false, false, false};
  default: break;
  }
  throw_internal_error("not a narrow float format", __FILE__, __LINE__);
}

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

uint32_t sign_bit(const Format& f) { return 1u << (f.exponent_bits + f.mantissa_bits); }

/// The all-ones exponent with zero mantissa: infinity in formats that have one.
uint32_t infinity(const Format& f) { return ((1u << f.exponent_bits) - 1) << f.mantissa_bits; }

/// Bits of the largest finite magnitude.
uint32_t largest(const Format& f) {
  if (f.has_infinity) return infinity(f) - 1;
  return sign_bit(f) - (f.all_ones_is_nan ? 2 : 1);
}

bool has_nan(const Format& f) { return f.has_infinity || f.all_ones_is_nan || f.negative_zero_is_nan; }

uint32_t nan(const Format& f, uint32_t sign) {
  if (f.negative_zero_is_nan) return sign_bit(f);
  if (f.all_ones_is_nan) return sign | (sign_bit(f) - 1);
  if (!has_nan(f)) return sign; // a zero
  return sign | infinity(f) | 1u << (f.mantissa_bits - 1);
}

float decode(const Format& f, uint32_t bits) {
  uint32_t sign = bits & sign_bit(f), magnitude = bits & (sign_bit(f) - 1);
  if (f.negative_zero_is_nan && bits == sign_bit(f)) return kNaN;
  if (f.all_ones_is_nan && magnitude == sign_bit(f) - 1) return kNaN;
  float value;
  if (f.has_infinity && magnitude >= infinity(f)) {
    value = magnitude == infinity(f) ? kInf : kNaN;
  } else if (magnitude >> f.mantissa_bits) {
    value = std::bit_cast<float>((magnitude << (23 - f.mantissa_bits)) +
                                 (static_cast<uint32_t>(127 - f.bias) << 23));
  } else {
    value = std::ldexp(static_cast<float>(magnitude), 1 - f.bias - f.mantissa_bits);
  }
  return sign ? -value : value;
}

uint32_t encode(const Format& f, float value, bool saturate) {
  uint32_t u = std::bit_cast<uint32_t>(value), magnitude = u & 0x7FFFFFFF;
  uint32_t sign = u >> 31 ? sign_bit(f) : 0;
  if (magnitude > 0x7F800000) return nan(f, sign);
  // value = significand * 2^(exponent - 23); the result's last mantissa bit is worth 2^(exponent - 23 +
  // shift).
  int exponent = std::max<int>(magnitude >> 23, 1) - 127;
  uint32_t significand = (magnitude & 0x7FFFFF) | (magnitude >> 23 ? 0x800000 : 0);
  int above_smallest = exponent - (1 - f.bias);
  int shift = 23 - f.mantissa_bits + std::max(0, -above_smallest);
  uint32_t rounded = 0;
  if (shift <= 24) rounded = (significand + (1u << (shift - 1)) - 1 + (significand >> shift & 1)) >> shift;
  // The leading bit of the significand carries into the exponent field, as does rounding up to a power of
  // two.
  uint32_t bits = rounded + (static_cast<uint32_t>(std::max(0, above_smallest)) << f.mantissa_bits);
  if (bits > largest(f)) {
    if (f.is_wide) return sign | infinity(f);
    if (saturate || !has_nan(f)) return sign | largest(f);
    return f.has_infinity ? sign | infinity(f) : nan(f, sign);
  }
  return bits == 0 && f.negative_zero_is_nan ? 0 : sign | bits;
}

/// E8M0 holds the powers of two 2^-127 .. 2^127 and NaN; halfway values round up, what is too small becomes
/// 2^-127.
uint32_t encode_e8m0(float value, bool saturate) {
  uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7FFFFFFF;
  if (magnitude > 0x7F800000) return 0xFF;
  // Below 2^-126 floats are denormal: 2^-127 is mantissa 0x400000 of exponent 0.
  uint32_t half = magnitude >> 23 ? 0x400000 : 0x200000;
  uint32_t exponent = (magnitude + half) >> 23;
  return exponent == 0xFF && saturate ? 0xFE : exponent;
}

} // namespace

float decode_float(DType type, uint32_t bits) {
  if (type == DType::bf16) return std::bit_cast<float>(bits << 16);
  if (type == DType::f8e8m0) return bits == 0xFF ? kNaN : std::ldexp(1.0f, static_cast<int>(bits) - 127);
  return decode(format_of(type), bits);
}

#if defined(__x86_64__)
namespace {

/// As below, eight at a time; returns how many that were. The instruction for it would change NaNs.
__attribute__((target("avx2"))) int64_t decode_eights(DType type, const uint16_t* bits, int64_t count,
                                                      float* to) {
  using Halves [[gnu::vector_size(16)]] = uint16_t;
  using Words [[gnu::vector_size(32)]] = uint32_t;
  using Floats [[gnu::vector_size(32)]] = float;
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    Halves halves;
    std::memcpy(&halves, bits + i, sizeof(halves));
    Words words = __builtin_convertvector(halves, Words);
    if (type == DType::bf16) {
      words <<= 16;
    } else {
      Floats wide;
      widen_f16(words, wide);
      words = reinterpret_cast<Words>(wide);
    }
    std::memcpy(to + i, &words, sizeof(words));
  }
  return i;
}

} // namespace
#endif

void decode_halves(DType type, const uint16_t* bits, int64_t count, float* to) {
#if defined(__x86_64__)
  static const bool by_eights = __builtin_cpu_supports("avx2");
  if (by_eights) {
    const int64_t done = decode_eights(type, bits, count, to);
    bits += done;
    to += done;
    count -= done;
  }
#endif
  if (type == DType::bf16) {
    for (int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16);
    return;
  }
  for (int64_t i = 0; i < count; ++i) widen_f16(uint32_t{bits[i]}, to[i]);
}

void encode_halves(DType type, const float* from, int64_t count, uint16_t* to) {
  const auto nan_bits = static_cast<uint16_t>(nan(format_of(type), 0));
  if (type == DType::bf16) {
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t u = std::bit_cast<uint32_t>(from[i]);
      const uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
      to[i] = static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? u >> 31 << 15 | nan_bits : rounded);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t u = std::bit_cast<uint32_t>(from[i]), magnitude = u & 0x7fffffff;
    // Exponents differ by 112. Adding 0.5 leaves a denormal's bits, rounded, at the end of the sum.
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t finite = magnitude < (113u << 23) ? denormal : normal;
    const uint32_t bounded = magnitude < 0x477ff000u ? finite : 0x7c00u;
    to[i] = static_cast<uint16_t>(u >> 31 << 15 | (magnitude > 0x7f800000 ? nan_bits : bounded));
  }
}

uint32_t encode_float(DType type, float value, bool saturate) {
  if (type == DType::f8e8m0) return encode_e8m0(value, saturate);
  return encode(format_of(type), value, saturate);
}

} // namespace tbx
