// Conversions between f32 and the narrow float formats, with ONNX's rounding (to nearest, ties to even).
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace tbx {

/// `bits` of one element of a low-precision float type -> f32, exactly.
float decode_float(DType type, uint32_t bits);

/// `count` elements of type f16 or bf16 as f32; a plain loop that compilers turn into vectors.
void decode_halves(DType type, const uint16_t* bits, int64_t count, float* to);

/// The same back, as encode_float() rounds.
void encode_halves(DType type, const float* from, int64_t count, uint16_t* to);

/// f32 -> nearest `type` value, as bits. `saturate` follows ONNX Cast for the f8 types (out-of-range becomes
/// the largest finite value when true, NaN/inf as the format has it when false); f16 and bf16 overflow to
/// infinity.
uint32_t encode_float(DType type, float value, bool saturate = true);

} // namespace tbx
