#include "base/dtype.h"

#include <array>

namespace tbx {
namespace {

struct Fact {
  DType type;
  int bits;
  std::string_view name;
};

constexpr std::array kFacts = {
    Fact{DType::undefined, 0, "undefined"},
    Fact{DType::f32, 32, "float32"},
    Fact{DType::u8, 8, "uint8"},
    Fact{DType::i8, 8, "int8"},
    Fact{DType::u16, 16, "uint16"},
    Fact{DType::i16, 16, "int16"},
    Fact{DType::i32, 32, "int32"},
    Fact{DType::i64, 64, "int64"},
    Fact{DType::string, 0, "string"},
    Fact{DType::boolean, 8, "bool"},
    Fact{DType::f16, 16, "float16"},
    Fact{DType::f64, 64, "float64"},
    Fact{DType::u32, 32, "uint32"},
    Fact{DType::u64, 64, "uint64"},
    Fact{DType::c64, 64, "complex64"},
    Fact{DType::c128, 128, "complex128"},
    Fact{DType::bf16, 16, "bfloat16"},
    Fact{DType::f8e4m3fn, 8, "float8e4m3fn"},
    Fact{DType::f8e4m3fnuz, 8, "float8e4m3fnuz"},
    Fact{DType::f8e5m2, 8, "float8e5m2"},
    Fact{DType::f8e5m2fnuz, 8, "float8e5m2fnuz"},
    Fact{DType::u4, 4, "uint4"},
    Fact{DType::i4, 4, "int4"},
    Fact{DType::f4e2m1, 4, "float4e2m1"},
    Fact{DType::f8e8m0, 8, "float8e8m0"},
    Fact{DType::u2, 2, "uint2"},
    Fact{DType::i2, 2, "int2"},
    Fact{DType::f6e2m3, 6, "float6e2m3"},
    Fact{DType::f6e3m2, 6, "float6e3m2"},
};

const Fact& fact(DType t) {
  auto i = static_cast<size_t>(t);
  return i < kFacts.size() ? kFacts[i] : kFacts[0];
}

} // namespace

int bits_of(DType t) { return fact(t).bits; }
int64_t size_of(DType t) { return (bits_of(t) + 7) / 8; }
std::string_view name_of(DType t) { return fact(t).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Fact& f : kFacts)
    if (f.name == name) return f.type;
  return std::nullopt;
}

std::optional<DType> dtype_from_number(int64_t number) {
  if (number <= 0 || number > static_cast<int64_t>(DType::f6e3m2)) return std::nullopt;
  return static_cast<DType>(number);
}

int significand_bits(DType t) {
  switch (t) {
  case DType::f64: return 53;
  case DType::f32: return 24;
  case DType::f16: return 11;
  case DType::bf16: return 8;
  case DType::f8e4m3fn:
  case DType::f8e4m3fnuz:
  case DType::f6e2m3: return 4;
  case DType::f8e5m2:
  case DType::f8e5m2fnuz:
  case DType::f6e3m2: return 3;
  case DType::f4e2m1: return 2;
  default: return t == DType::f8e8m0 ? 1 : 0;
  }
}

bool is_low_precision_float(DType t) {
  switch (t) {
  case DType::f16:
  case DType::bf16:
  case DType::f8e4m3fn:
  case DType::f8e4m3fnuz:
  case DType::f8e5m2:
  case DType::f8e5m2fnuz:
  case DType::f4e2m1:
  case DType::f6e2m3:
  case DType::f6e3m2:
  case DType::f8e8m0: return true;
  default: return false;
  }
}

bool is_float(DType t) { return t == DType::f32 || t == DType::f64 || is_low_precision_float(t); }
bool is_byte(DType t) { return t == DType::i8 || t == DType::u8; }
bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }
bool is_complex(DType t) { return t == DType::c64 || t == DType::c128; }

bool is_integer(DType t) {
  switch (t) {
  case DType::i8:
  case DType::i16:
  case DType::i32:
  case DType::i64:
  case DType::u8:
  case DType::u16:
  case DType::u32:
  case DType::u64:
  case DType::i4:
  case DType::u4:
  case DType::i2:
  case DType::u2: return true;
  default: return false;
  }
}

bool is_signed(DType t) {
  switch (t) {
  case DType::i8:
  case DType::i16:
  case DType::i32:
  case DType::i64:
  case DType::i4:
  case DType::i2: return true;
  default: return is_float(t);
  }
}

DType compute_type(DType t) {
  if (is_low_precision_float(t)) return DType::f32;
  if (t == DType::i4 || t == DType::i2) return DType::i8;
  if (t == DType::u4 || t == DType::u2) return DType::u8;
  return t;
}

} // namespace tbx
