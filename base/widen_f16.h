// widen_f16: f16 as f32, of one word or of a vector of words, in any instruction set.
#pragma once

#include <cstdint>

namespace tbx {

/// `bits` of f16 in words of 32 bits -> f32, exactly; by reference, since wide vectors have no calling
/// convention on the base target. Exponents differ by 112. Denormals lie behind a power of two, which is
/// subtracted: nothing is computed with denormal f32, of which one takes as long as a hundred others, and
/// which callers may have told the processor to take for 0.
template <class Word, class Float> [[gnu::always_inline]] inline void widen_f16(const Word& bits, Float& to) {
  const Word magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  const Word normal = magnitude + (112u << 23);
  const Float denormal = __builtin_bit_cast(Float, normal + (1u << 23)) - 0x1p-14f;
  const Word finite = magnitude < (1u << 23) ? __builtin_bit_cast(Word, denormal) : normal;
  const Word all = magnitude < (0x7c00u << 13) ? finite : finite | 0x7f800000u;
  to = __builtin_bit_cast(Float, all | sign);
}

} // namespace tbx
