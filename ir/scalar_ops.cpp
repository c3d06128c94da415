#include "ir/scalar_ops.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/float_formats.h"

namespace tbx::ir {
namespace {

int width_of(DType t) {
  switch (t) {
  case DType::i8:
  case DType::u8: return 8;
  case DType::i16:
  case DType::u16: return 16;
  case DType::i32:
  case DType::u32: return 32;
  case DType::boolean: return 1;
  default: return 64;
  }
}

template <class T> T float_unary(Op op, T x) {
  switch (op) {
  case Op::neg: return -x;
  case Op::abs: return std::fabs(x);
  case Op::sign: return x > 0 ? T(1) : x < 0 ? T(-1) : x; // keeps -0, +0 and NaN
  case Op::ceil: return std::ceil(x);
  case Op::floor: return std::floor(x);
  case Op::round_even: return std::nearbyint(x);
  case Op::trunc: return std::trunc(x);
  case Op::sqrt: return std::sqrt(x);
  case Op::rsqrt: return T(1) / std::sqrt(x);
  case Op::reciprocal: return T(1) / x;
  case Op::exp: return std::exp(x);
  case Op::expm1: return std::expm1(x);
  case Op::log: return std::log(x);
  case Op::log1p: return std::log1p(x);
  case Op::sin: return std::sin(x);
  case Op::cos: return std::cos(x);
  case Op::tan: return std::tan(x);
  case Op::asin: return std::asin(x);
  case Op::acos: return std::acos(x);
  case Op::atan: return std::atan(x);
  case Op::sinh: return std::sinh(x);
  case Op::cosh: return std::cosh(x);
  case Op::tanh: return std::tanh(x);
  case Op::asinh: return std::asinh(x);
  case Op::acosh: return std::acosh(x);
  case Op::atanh: return std::atanh(x);
  case Op::erf: return std::erf(x);
  case Op::sigmoid: return x >= 0 ? T(1) / (T(1) + std::exp(-x)) : std::exp(x) / (T(1) + std::exp(x));
  case Op::softplus: return std::max(x, T(0)) + std::log1p(std::exp(-std::fabs(x)));
  default: break;
  }
  throw_internal_error("unary operator on a float", __FILE__, __LINE__);
}

int64_t integer_unary(Op op, DType type, int64_t x) {
  switch (op) {
  case Op::neg: return wrap_integer(type, static_cast<int64_t>(-static_cast<uint64_t>(x)));
  case Op::abs:
    return is_signed(type) && x < 0 ? wrap_integer(type, static_cast<int64_t>(-static_cast<uint64_t>(x))) : x;
  case Op::sign: return is_signed(type) ? (x > 0) - (x < 0) : x != 0;
  case Op::ceil:
  case Op::floor:
  case Op::round_even:
  case Op::trunc: return x;
  case Op::logical_not: return !x;
  case Op::bitwise_not: return wrap_integer(type, ~x);
  case Op::popcount:
    return std::popcount(static_cast<uint64_t>(x) &
                         (width_of(type) == 64 ? ~0ull : (1ull << width_of(type)) - 1));
  case Op::is_nan:
  case Op::is_inf: return 0;
  default: break;
  }
  throw_internal_error("unary operator on an integer", __FILE__, __LINE__);
}

template <class T> T float_binary(Op op, T a, T b) {
  switch (op) {
  case Op::add: return a + b;
  case Op::sub: return a - b;
  case Op::mul: return a * b;
  case Op::div: return a / b;
  case Op::floor_mod: {
    T r = std::fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
  case Op::fmod: return std::fmod(a, b);
  case Op::pow: return std::pow(a, b);
  case Op::min: return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
  case Op::max: return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
  case Op::atan2: return std::atan2(a, b);
  default: break;
  }
  throw_internal_error("binary operator on floats", __FILE__, __LINE__);
}

int64_t integer_pow(DType type, int64_t base, int64_t exponent) {
  if (is_signed(type) && exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t r = 1, b = static_cast<uint64_t>(base), e = static_cast<uint64_t>(exponent);
  for (; e; e >>= 1, b *= b)
    if (e & 1) r *= b;
  return wrap_integer(type, static_cast<int64_t>(r));
}

int64_t divide(DType type, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (!is_signed(type)) return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  if (b == -1) return wrap_integer(type, static_cast<int64_t>(-static_cast<uint64_t>(a)));
  return a / b;
}

int64_t remainder(DType type, int64_t a, int64_t b, bool floor) {
  if (b == 0) return 0;
  if (!is_signed(type)) return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  if (b == -1) return 0;
  int64_t r = a % b;
  return floor && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t integer_binary(Op op, DType type, int64_t a, int64_t b) {
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  bool less = is_signed(type) ? a < b : ua < ub;
  int width = width_of(type);
  bool too_far = ub >= static_cast<uint64_t>(width);
  switch (op) {
  case Op::add: return wrap_integer(type, static_cast<int64_t>(ua + ub));
  case Op::sub: return wrap_integer(type, static_cast<int64_t>(ua - ub));
  case Op::mul: return wrap_integer(type, static_cast<int64_t>(ua * ub));
  case Op::div: return divide(type, a, b);
  case Op::floor_mod: return remainder(type, a, b, true);
  case Op::fmod: return remainder(type, a, b, false);
  case Op::pow: return integer_pow(type, a, b);
  case Op::min: return less ? a : b;
  case Op::max: return less ? b : a;
  case Op::logical_and: return a && b;
  case Op::logical_or: return a || b;
  case Op::logical_xor: return !a != !b;
  case Op::bitwise_and: return a & b;
  case Op::bitwise_or: return a | b;
  case Op::bitwise_xor: return wrap_integer(type, a ^ b);
  case Op::shift_left: return too_far ? 0 : wrap_integer(type, static_cast<int64_t>(ua << ub));
  case Op::shift_right: {
    if (too_far) return 0;
    return is_signed(type) ? a >> ub : static_cast<int64_t>(ua >> ub);
  }
  default: break;
  }
  throw_internal_error("binary operator on integers", __FILE__, __LINE__);
}

template <class T> bool compare(Op op, T a, T b) {
  switch (op) {
  case Op::equal: return a == b;
  case Op::not_equal: return a != b;
  case Op::less: return a < b;
  case Op::less_equal: return a <= b;
  case Op::greater: return a > b;
  default: return a >= b;
  }
}

int64_t saturate_to(DType to, double v) {
  if (std::isnan(v)) return 0;
  v = std::trunc(v);
  if (to == DType::u64) {
    if (v <= 0) return 0;
    return v >= 18446744073709551616.0 ? -1 : static_cast<int64_t>(static_cast<uint64_t>(v));
  }
  int width = width_of(to);
  double lo = is_signed(to) ? -std::ldexp(1.0, width - 1) : 0;
  double hi = std::ldexp(1.0, is_signed(to) ? width - 1 : width); // exclusive
  if (v < lo)
    return is_signed(to) ? (width == 64 ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(lo)) : 0;
  if (v >= hi) return width == 64 ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(hi) - 1;
  return static_cast<int64_t>(v);
}

} // namespace

int64_t wrap_integer(DType type, int64_t v) {
  switch (type) {
  case DType::boolean: return v != 0;
  case DType::i8: return static_cast<int8_t>(v);
  case DType::u8: return static_cast<uint8_t>(v);
  case DType::i16: return static_cast<int16_t>(v);
  case DType::u16: return static_cast<uint16_t>(v);
  case DType::i32: return static_cast<int32_t>(v);
  case DType::u32: return static_cast<uint32_t>(v);
  default: return v;
  }
}

Scalar apply_unary(Op op, DType type, Scalar a) {
  if (type == DType::f32 || type == DType::f64) {
    if (op == Op::is_nan) return {std::isnan(a.f), 0};
    if (op == Op::is_inf) return {std::isinf(a.f), 0};
    if (type == DType::f32) return {0, float_unary<float>(op, static_cast<float>(a.f))};
    return {0, float_unary<double>(op, a.f)};
  }
  return {integer_unary(op, type, a.i), 0};
}

Scalar apply_binary(Op op, DType type, Scalar a, Scalar b) {
  if (op == Op::random) return {0, philox_uniform(a.i, b.i)};
  bool floating = type == DType::f32 || type == DType::f64;
  if (is_comparison(op)) {
    if (floating) return {compare(op, a.f, b.f), 0};
    if (is_signed(type) || type == DType::boolean) return {compare(op, a.i, b.i), 0};
    return {compare(op, static_cast<uint64_t>(a.i), static_cast<uint64_t>(b.i)), 0};
  }
  if (type == DType::f32)
    return {0, float_binary<float>(op, static_cast<float>(a.f), static_cast<float>(b.f))};
  if (type == DType::f64) return {0, float_binary<double>(op, a.f, b.f)};
  return {integer_binary(op, type, a.i, b.i), 0};
}

Scalar apply_cast(DType from, DType to, Scalar a) {
  bool from_float = from == DType::f32 || from == DType::f64;
  if (to == DType::f32 || to == DType::f64) {
    if (!from_float) {
      if (to == DType::f32)
        return {0, from == DType::u64 ? static_cast<float>(static_cast<uint64_t>(a.i))
                                      : static_cast<float>(a.i)};
      return {0, from == DType::u64 ? static_cast<double>(static_cast<uint64_t>(a.i))
                                    : static_cast<double>(a.i)};
    }
    return {0, to == DType::f32 ? static_cast<double>(static_cast<float>(a.f)) : a.f};
  }
  if (to == DType::boolean) return {from_float ? a.f != 0 : a.i != 0, 0};
  if (from_float) return {saturate_to(to, a.f), 0};
  return {wrap_integer(to, a.i), 0};
}

Scalar apply_bitcast(DType from, DType to, Scalar a) {
  uint64_t bits = static_cast<uint64_t>(a.i);
  if (from == DType::f32) bits = std::bit_cast<uint32_t>(static_cast<float>(a.f));
  if (from == DType::f64) bits = std::bit_cast<uint64_t>(a.f);
  if (to == DType::f32) return {0, std::bit_cast<float>(static_cast<uint32_t>(bits))};
  if (to == DType::f64) return {0, std::bit_cast<double>(bits)};
  return {wrap_integer(to, static_cast<int64_t>(bits)), 0};
}

Scalar apply_round(DType format, bool saturate, Scalar a) {
  return {0, decode_float(format, encode_float(format, static_cast<float>(a.f), saturate))};
}

float philox_uniform(int64_t seed, int64_t counter) {
  // Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32)};
  uint32_t x[4] = {static_cast<uint32_t>(counter),
                   static_cast<uint32_t>(static_cast<uint64_t>(counter) >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * x[0], p1 = uint64_t{0xCD9E8D57} * x[2];
    uint32_t y[4] = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ key[0], static_cast<uint32_t>(p1),
                     static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ key[1], static_cast<uint32_t>(p0)};
    std::memcpy(x, y, sizeof x);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return static_cast<float>(x[0] >> 8) * 0x1p-24f;
}

} // namespace tbx::ir
