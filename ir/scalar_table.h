// The meaning of every Op as a function object, handed to a callback: applied to one value it is the scalar
// semantics (scalar_ops.h), looped over a block it is the evaluator's arithmetic (lane_ops.h). Written once,
// used by both.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "ir/scalar_ops.h"

namespace tbx::ir {

/// Operators on f32 and f64 (T = float, double) with a result of the same type.
template <class T, class Use> auto for_float_unary(Op op, Use&& use) {
  switch (op) {
  case Op::neg: return use([](T x) { return -x; });
  case Op::abs: return use([](T x) { return std::fabs(x); });
  case Op::sign: return use([](T x) { return x > 0 ? T(1) : x < 0 ? T(-1) : x; }); // keeps -0, +0 and NaN
  case Op::ceil: return use([](T x) { return std::ceil(x); });
  case Op::floor: return use([](T x) { return std::floor(x); });
  case Op::round_even: return use([](T x) { return std::nearbyint(x); });
  case Op::trunc: return use([](T x) { return std::trunc(x); });
  case Op::sqrt: return use([](T x) { return std::sqrt(x); });
  case Op::rsqrt: return use([](T x) { return T(1) / std::sqrt(x); });
  case Op::reciprocal: return use([](T x) { return T(1) / x; });
  case Op::exp: return use([](T x) { return std::exp(x); });
  case Op::expm1: return use([](T x) { return std::expm1(x); });
  case Op::log: return use([](T x) { return std::log(x); });
  case Op::log1p: return use([](T x) { return std::log1p(x); });
  case Op::sin: return use([](T x) { return std::sin(x); });
  case Op::cos: return use([](T x) { return std::cos(x); });
  case Op::tan: return use([](T x) { return std::tan(x); });
  case Op::asin: return use([](T x) { return std::asin(x); });
  case Op::acos: return use([](T x) { return std::acos(x); });
  case Op::atan: return use([](T x) { return std::atan(x); });
  case Op::sinh: return use([](T x) { return std::sinh(x); });
  case Op::cosh: return use([](T x) { return std::cosh(x); });
  case Op::tanh: return use([](T x) { return std::tanh(x); });
  case Op::asinh: return use([](T x) { return std::asinh(x); });
  case Op::acosh: return use([](T x) { return std::acosh(x); });
  case Op::atanh: return use([](T x) { return std::atanh(x); });
  case Op::erf: return use([](T x) { return std::erf(x); });
  case Op::sigmoid:
    // The exponential never overflows.
    return use([](T x) {
      T e = std::exp(-std::fabs(x));
      return (x >= 0 ? T(1) : e) / (T(1) + e);
    });
  case Op::softplus: return use([](T x) { return std::max(x, T(0)) + std::log1p(std::exp(-std::fabs(x))); });
  default: throw_internal_error("unary operator on a float", __FILE__, __LINE__);
  }
}

template <class T, class Use> auto for_float_binary(Op op, Use&& use) {
  switch (op) {
  case Op::add: return use([](T a, T b) { return a + b; });
  case Op::sub: return use([](T a, T b) { return a - b; });
  case Op::mul: return use([](T a, T b) { return a * b; });
  case Op::div: return use([](T a, T b) { return a / b; });
  case Op::floor_mod:
    return use([](T a, T b) {
      T r = std::fmod(a, b);
      return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    });
  case Op::fmod: return use([](T a, T b) { return std::fmod(a, b); });
  case Op::pow: return use([](T a, T b) { return std::pow(a, b); });
  case Op::min: return use([](T a, T b) { return a != a || a <= b ? a : b; });
  case Op::max: return use([](T a, T b) { return a != a || a >= b ? a : b; });
  case Op::atan2: return use([](T a, T b) { return std::atan2(a, b); });
  default: throw_internal_error("binary operator on floats", __FILE__, __LINE__);
  }
}

/// T = float, double, int64_t or uint64_t.
template <class T, class Use> auto for_comparison(Op op, Use&& use) {
  switch (op) {
  case Op::equal: return use([](T a, T b) { return a == b; });
  case Op::not_equal: return use([](T a, T b) { return a != b; });
  case Op::less: return use([](T a, T b) { return a < b; });
  case Op::less_equal: return use([](T a, T b) { return a <= b; });
  case Op::greater: return use([](T a, T b) { return a > b; });
  default: return use([](T a, T b) { return a >= b; });
  }
}

/// Bits of an integer compute type; 1 for bool.
inline int width_of(DType t) { return t == DType::boolean ? 1 : bits_of(t); }

// Integers travel as int64_t, sign- or zero-extended. Results of the functions below still need
// wrap_integer(type, ..).

template <class Use> auto for_integer_unary(Op op, DType type, Use&& use) {
  const bool is_signed_type = is_signed(type);
  const int width = width_of(type);
  using U = uint64_t;
  switch (op) {
  case Op::neg: return use([](int64_t x) { return static_cast<int64_t>(-static_cast<U>(x)); });
  case Op::abs:
    return use(
        [=](int64_t x) { return is_signed_type && x < 0 ? static_cast<int64_t>(-static_cast<U>(x)) : x; });
  case Op::sign: return use([=](int64_t x) { return int64_t{is_signed_type ? (x > 0) - (x < 0) : x != 0}; });
  case Op::ceil:
  case Op::floor:
  case Op::round_even:
  case Op::trunc: return use([](int64_t x) { return x; });
  case Op::logical_not: return use([](int64_t x) { return int64_t{!x}; });
  case Op::bitwise_not: return use([](int64_t x) { return ~x; });
  case Op::popcount: {
    const U mask = width == 64 ? ~U{0} : (U{1} << width) - 1;
    return use([=](int64_t x) { return int64_t{std::popcount(static_cast<U>(x) & mask)}; });
  }
  case Op::is_nan:
  case Op::is_inf: return use([](int64_t) { return int64_t{0}; });
  default: throw_internal_error("unary operator on an integer", __FILE__, __LINE__);
  }
}

inline int64_t divide_integers(bool is_signed_type, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (!is_signed_type) return static_cast<int64_t>(static_cast<uint64_t>(a) / static_cast<uint64_t>(b));
  return b == -1 ? static_cast<int64_t>(-static_cast<uint64_t>(a)) : a / b;
}

/// The sign is that of the divisor when `floor`, else that of the dividend; x mod 0 = 0.
inline int64_t integer_remainder(bool is_signed_type, bool floor, int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (!is_signed_type) return static_cast<int64_t>(static_cast<uint64_t>(a) % static_cast<uint64_t>(b));
  if (b == -1) return 0;
  int64_t r = a % b;
  return floor && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

inline int64_t integer_power(bool is_signed_type, int64_t base, int64_t exponent) {
  if (is_signed_type && exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t r = 1, b = static_cast<uint64_t>(base);
  for (auto e = static_cast<uint64_t>(exponent); e; e >>= 1, b *= b)
    if (e & 1) r *= b;
  return static_cast<int64_t>(r);
}

template <class Use> auto for_integer_binary(Op op, DType type, Use&& use) {
  using U = uint64_t;
  const bool is_signed_type = is_signed(type);
  const auto width = static_cast<U>(width_of(type));
  switch (op) {
  case Op::add:
    return use(
        [](int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<U>(a) + static_cast<U>(b)); });
  case Op::sub:
    return use(
        [](int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<U>(a) - static_cast<U>(b)); });
  case Op::mul:
    return use(
        [](int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<U>(a) * static_cast<U>(b)); });
  case Op::div: return use([=](int64_t a, int64_t b) { return divide_integers(is_signed_type, a, b); });
  case Op::floor_mod:
    return use([=](int64_t a, int64_t b) { return integer_remainder(is_signed_type, true, a, b); });
  case Op::fmod:
    return use([=](int64_t a, int64_t b) { return integer_remainder(is_signed_type, false, a, b); });
  case Op::pow: return use([=](int64_t a, int64_t b) { return integer_power(is_signed_type, a, b); });
  // Only u64 is ordered otherwise than as int64_t.
  case Op::min:
    return type == DType::u64
               ? use([](int64_t a, int64_t b) { return static_cast<U>(a) < static_cast<U>(b) ? a : b; })
               : use([](int64_t a, int64_t b) { return a < b ? a : b; });
  case Op::max:
    return type == DType::u64
               ? use([](int64_t a, int64_t b) { return static_cast<U>(a) < static_cast<U>(b) ? b : a; })
               : use([](int64_t a, int64_t b) { return a < b ? b : a; });
  case Op::logical_and: return use([](int64_t a, int64_t b) { return int64_t{a && b}; });
  case Op::logical_or: return use([](int64_t a, int64_t b) { return int64_t{a || b}; });
  case Op::logical_xor: return use([](int64_t a, int64_t b) { return int64_t{!a != !b}; });
  case Op::bitwise_and: return use([](int64_t a, int64_t b) { return a & b; });
  case Op::bitwise_or: return use([](int64_t a, int64_t b) { return a | b; });
  case Op::bitwise_xor: return use([](int64_t a, int64_t b) { return a ^ b; });
  // Shifts by the width or more, or by a negative number, give 0.
  case Op::shift_left:
    return use([=](int64_t a, int64_t b) {
      return static_cast<U>(b) >= width ? 0 : static_cast<int64_t>(static_cast<U>(a) << b);
    });
  case Op::shift_right:
    return is_signed_type
               ? use([=](int64_t a, int64_t b) { return static_cast<U>(b) >= width ? 0 : a >> b; })
               : use([=](int64_t a, int64_t b) {
                   return static_cast<U>(b) >= width ? 0 : static_cast<int64_t>(static_cast<U>(a) >> b);
                 });
  default: throw_internal_error("binary operator on integers", __FILE__, __LINE__);
  }
}

/// Conversion of floats to an integer type: truncates, saturates, NaN becomes 0.
struct Saturate {
  double below, above; ///< the first values that do not fit
  int64_t least, greatest;
  bool is_u64;

  explicit Saturate(DType to) : is_u64(to == DType::u64) {
    const int bits = width_of(to) - (is_signed(to) ? 1 : 0);
    above = std::ldexp(1.0, bits);
    below = is_signed(to) && bits < 63 ? -above - 1 : is_signed(to) ? -above : -1.0;
    greatest = bits == 64 ? -1 : bits == 63 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << bits) - 1;
    least = is_signed(to) ? -greatest - 1 : 0;
  }
  int64_t operator()(double v) const {
    if (v != v) return 0;
    if (v >= above) return greatest;
    if (v <= below) return least;
    return is_u64 ? static_cast<int64_t>(static_cast<uint64_t>(v)) : static_cast<int64_t>(v);
  }
};

/// Casts of In = float, double or int64_t (an integer of type `from`) to the compute type `to`.
template <class In, class Use> auto for_cast(DType from, DType to, Use&& use) {
  constexpr bool kFromInteger = std::is_same_v<In, int64_t>;
  const bool from_u64 = from == DType::u64;
  switch (to) {
  case DType::f32:
    if (kFromInteger && from_u64)
      return use([](In x) { return static_cast<float>(static_cast<uint64_t>(x)); });
    return use([](In x) { return static_cast<float>(x); });
  case DType::f64:
    if (kFromInteger && from_u64)
      return use([](In x) { return static_cast<double>(static_cast<uint64_t>(x)); });
    return use([](In x) { return static_cast<double>(x); });
  case DType::boolean: return use([](In x) { return int64_t{x != 0}; });
  default:
    if constexpr (kFromInteger) {
      return use([=](In x) { return wrap_integer(to, x); });
    } else {
      return use([saturate = Saturate(to)](In x) { return saturate(static_cast<double>(x)); });
    }
  }
}

} // namespace tbx::ir
