// Products of recurrent layers in bfloat16: pairs of neighbours along the sum are multiplied and added in
// float32 by one instruction. A pair has the place of a float.
#pragma once

#include <cstdint>

namespace tbx::extern_kernels::recurrent {

/// The CPU has that instruction; the others may be called there alone.
bool multiplies_pairs();

/// `n` values as pairs, the last one with 0 where n is odd.
void round_to_pairs(const float* from, int64_t n, float* to);

/// sums[row * width + c] = sum over `depth` pairs of states[row * stride + i] * panel[i * width + c], where
/// the width is `vectors` (3 or 4) times 16.
void multiply_pairs(const float* panel, int vectors, const float* states, int64_t stride, int64_t rows,
                    int64_t depth, float* sums);

} // namespace tbx::extern_kernels::recurrent
