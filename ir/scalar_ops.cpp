#include "ir/scalar_ops.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/float_formats.h"
#include "ir/scalar_table.h"

namespace tbx::ir {
namespace {

bool is_real(DType t) { return t == DType::f32 || t == DType::f64; }

/// Calls `use` with the operand as the type it is computed in.
template <class Use> Scalar typed(DType type, Scalar a, Use&& use) {
  if (type == DType::f32) return use(static_cast<float>(a.f));
  if (type == DType::f64) return use(a.f);
  return use(a.i);
}

Scalar scalar(int64_t v) { return {v, 0}; }
Scalar scalar(double v) { return {0, v}; }
Scalar scalar(float v) { return {0, v}; }

} // namespace

int64_t wrap_integer(DType type, int64_t v) {
  switch (type) {
  case DType::boolean: return v != 0;
  case DType::i8: return static_cast<int8_t>(v);
  case DType::u8: return static_cast<uint8_t>(v);
  case DType::i16: return static_cast<int16_t>(v);
  case DType::u16: return static_cast<uint16_t>(v);
  case DType::i32: return static_cast<int32_t>(v);
  case DType::u32: return static_cast<uint32_t>(v);
  default: return v;
  }
}

Scalar apply_unary(Op op, DType type, Scalar a) {
  if (is_real(type) && op == Op::is_nan) return {a.f != a.f, 0};
  if (is_real(type) && op == Op::is_inf) return {std::isinf(a.f), 0};
  return typed(type, a, [&]<class T>(T x) {
    if constexpr (std::is_floating_point_v<T>)
      return for_float_unary<T>(op, [&](auto f) { return scalar(f(x)); });
    else
      return for_integer_unary(op, type, [&](auto f) { return scalar(wrap_integer(type, f(x))); });
  });
}

Scalar apply_binary(Op op, DType type, Scalar a, Scalar b) {
  if (op == Op::random) return {0, philox_uniform(a.i, b.i)};
  if (is_comparison(op)) {
    auto compared = [](auto x, auto y) { return [=](auto f) { return Scalar{f(x, y), 0}; }; };
    if (is_real(type)) return for_comparison<double>(op, compared(a.f, b.f));
    if (type != DType::u64) return for_comparison<int64_t>(op, compared(a.i, b.i));
    return for_comparison<uint64_t>(op, compared(static_cast<uint64_t>(a.i), static_cast<uint64_t>(b.i)));
  }
  return typed(type, a, [&]<class T>(T x) {
    if constexpr (std::is_floating_point_v<T>)
      return for_float_binary<T>(op, [&](auto f) { return scalar(f(x, static_cast<T>(b.f))); });
    else
      return for_integer_binary(op, type, [&](auto f) { return scalar(wrap_integer(type, f(x, b.i))); });
  });
}

Scalar apply_cast(DType from, DType to, Scalar a) {
  return typed(from, a,
               [&]<class T>(T x) { return for_cast<T>(from, to, [&](auto f) { return scalar(f(x)); }); });
}

Scalar apply_bitcast(DType from, DType to, Scalar a) {
  uint64_t bits = static_cast<uint64_t>(a.i);
  if (from == DType::f32) bits = std::bit_cast<uint32_t>(static_cast<float>(a.f));
  if (from == DType::f64) bits = std::bit_cast<uint64_t>(a.f);
  if (to == DType::f32) return {0, std::bit_cast<float>(static_cast<uint32_t>(bits))};
  if (to == DType::f64) return {0, std::bit_cast<double>(bits)};
  return {wrap_integer(to, static_cast<int64_t>(bits)), 0};
}

Scalar apply_round(DType format, bool saturate, Scalar a) {
  return {0, decode_float(format, encode_float(format, static_cast<float>(a.f), saturate))};
}

float philox_uniform(int64_t seed, int64_t counter) {
  // Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32)};
  uint32_t x[4] = {static_cast<uint32_t>(counter),
                   static_cast<uint32_t>(static_cast<uint64_t>(counter) >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * x[0], p1 = uint64_t{0xCD9E8D57} * x[2];
    uint32_t y[4] = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ key[0], static_cast<uint32_t>(p1),
                     static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ key[1], static_cast<uint32_t>(p0)};
    std::memcpy(x, y, sizeof x);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return static_cast<float>(x[0] >> 8) * 0x1p-24f;
}

} // namespace tbx::ir
