// Vectors as wide as an instruction set has them: of wider ones the compiler keeps the parts in memory.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels {

/// Of `B` bytes; `Halves` are as many as the others, of two bytes each.
template <int B> struct VectorOf;
template <> struct VectorOf<16> {
  typedef float Lanes __attribute__((vector_size(16), may_alias));
  typedef int32_t Ints __attribute__((vector_size(16), may_alias));
  typedef uint32_t Words __attribute__((vector_size(16), may_alias));
  typedef uint16_t Halves __attribute__((vector_size(8), may_alias));
};
template <> struct VectorOf<32> {
  typedef float Lanes __attribute__((vector_size(32), may_alias));
  typedef int32_t Ints __attribute__((vector_size(32), may_alias));
  typedef uint32_t Words __attribute__((vector_size(32), may_alias));
  typedef uint16_t Halves __attribute__((vector_size(16), may_alias));
};
template <> struct VectorOf<64> {
  typedef float Lanes __attribute__((vector_size(64), may_alias));
  typedef int32_t Ints __attribute__((vector_size(64), may_alias));
  typedef uint32_t Words __attribute__((vector_size(64), may_alias));
  typedef uint16_t Halves __attribute__((vector_size(32), may_alias));
};

} // namespace tbx::extern_kernels
