// The tensor element types of ONNX and their storage facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tbx {

/// Element types; the numbers are those of onnx.TensorProto.DataType (onnx.proto), so conversion is a cast.
enum class DType : int32_t {
  undefined = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  string = 8,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  c64 = 14,
  c128 = 15,
  bf16 = 16,
  f8e4m3fn = 17,
  f8e4m3fnuz = 18,
  f8e5m2 = 19,
  f8e5m2fnuz = 20,
  u4 = 21,
  i4 = 22,
  f4e2m1 = 23,
  f8e8m0 = 24,
  u2 = 25,
  i2 = 26,
  f6e2m3 = 27,
  f6e3m2 = 28,
};

/// Bits one element takes in a packed tensor; 0 for `string` and `undefined`.
int bits_of(DType t);

/// Bytes of one element in tensorbox buffers. Sub-byte types are held one element per byte in buffers
/// (unpacked at import, packed again at the API boundary), so this is at least 1 for every numeric type.
int64_t size_of(DType t);

/// ONNX's spelling in lower case: "float32", "bfloat16", "float8e4m3fn", "int4", ...
std::string_view name_of(DType t);
std::optional<DType> dtype_from_name(std::string_view name);
/// The type of a TensorProto.DataType read from a file, complex and string included; nullopt for a number
/// that is none.
std::optional<DType> dtype_from_number(int64_t number);

/// Bits of the significand of a float, with the one that is not stored: two to this power bounds the
/// integers that are all exact.
int significand_bits(DType t);

bool is_float(DType t);   ///< IEEE-like floating types, f8/f6/f4 included
bool is_integer(DType t); ///< signed and unsigned integers, sub-byte included; not bool
bool is_byte(DType t);    ///< i8 or u8, a whole byte
bool is_half(DType t);    ///< f16 or bf16
bool is_signed(DType t);  ///< signed integers and floats
bool is_complex(DType t);
/// f16, bf16, all f8, f6, f4, f8e8m0: stored narrow, computed in f32.
bool is_low_precision_float(DType t);

/// The type in which bodies compute values stored as `t`: f32 for low-precision floats, the 8-bit type for
/// sub-byte integers, otherwise `t` itself. One of: boolean, i8..i64, u8..u64, f32, f64 (complex and string
/// have none).
DType compute_type(DType t);

} // namespace tbx
