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

} // namespace tbx::extern_kernels
