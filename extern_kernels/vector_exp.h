// e^x of whole vectors for hand-written kernels, inlined into one function per instruction set.
#pragma once

#include <cstring>

namespace tbx::extern_kernels {

/// y = e^x for every lane of x in [-87, 0], 1 ULP off at most. `Lanes` is a GCC vector of float, `Ints` one
/// of as many int32. By reference: vectors wider than the target's registers must not cross a call.
template <class Ints, class Lanes>
[[gnu::always_inline]] inline void exp_of_negative(const Lanes& x, Lanes& y) {
  constexpr float kWhole = 0x1.8p23f + 127; // what is added to it is rounded, and lies in the low bits
  const Lanes at = x * 0x1.715476p0f + kWhole;
  const Lanes n = at - kWhole;    // rounded x / ln 2
  Lanes r = x - n * 0x1.62e4p-1f; // ln 2 in two parts
  r = r - n * 0x1.7f7d1cp-20f;
  Lanes q = 0.008368882350623608f + r * 0.0013950479915365577f;
  q = 0.04166620597243309f + r * q;
  q = 0.1666651964187622f + r * q;
  q = 0.5f + r * q;
  Lanes p = 1 + (r + r * r * q);
  Ints power; // 2^n
  std::memcpy(&power, &at, sizeof power);
  power = power << 23;
  Lanes scale;
  std::memcpy(&scale, &power, sizeof scale);
  y = p * scale;
}

/// What the next function takes as the least power. Volatile: the compiler makes one maximum with a number
/// that it does not know, but a comparison and a choice with a constant.
inline const volatile float kLeastPower = -0x1.601e68p6f; // -127 ln 2

/// y = e^x for every lane of x <= 0: off by 2 + |x| / 8 ULP at most, where rounding x alone may make |x| / 2;
/// 0 below -88, NaN for NaN. `least` is kLeastPower in every lane. For targets that round a product and a sum
/// at once: what is left of x / ln 2 is exact only so.
template <class Ints, class Lanes>
[[gnu::always_inline]] inline void exp_of_negative_fused(const Lanes& x, const Lanes& least, Lanes& y) {
  constexpr float kWhole = 0x1.8p23f + 127, kPerLn2 = 0x1.715476p0f;
  const Lanes in = least > x ? least : x;
  const Lanes at = in * kPerLn2 + kWhole;
  const Lanes n = at - kWhole;
  const Lanes r = in * kPerLn2 - n;
  Lanes p = 0.009671619161963463f + r * 0.0013264591107144952f; // 2^r
  p = 0.0555073507130146f + r * p;
  p = 0.24022240936756134f + r * p;
  p = 0.6931470036506653f + r * p;
  p = 1 + r * p;
  Ints power; // 2^n, 0 for the least
  std::memcpy(&power, &at, sizeof power);
  power = power << 23;
  Lanes scale;
  std::memcpy(&scale, &power, sizeof scale);
  y = p * scale;
}

} // namespace tbx::extern_kernels
