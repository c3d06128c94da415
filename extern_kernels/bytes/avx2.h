// What functions are marked with that are written in AVX2 and FMA.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#define TBX_AVX2 __attribute__((target("avx2,fma")))
#define TBX_AVX2_INLINE __attribute__((target("avx2,fma"), always_inline)) inline
#endif
