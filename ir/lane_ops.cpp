#include "ir/lane_ops.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/float_formats.h"

namespace tbx::ir {

LaneType lane_type(DType t) {
  return t == DType::f32 ? LaneType::f32 : t == DType::f64 ? LaneType::f64 : LaneType::integer;
}

Scalar get_lane(const Lanes& v, LaneType t, int lane) {
  switch (t) {
  case LaneType::f32: return {0, v.f[lane]};
  case LaneType::f64: return {0, v.d[lane]};
  case LaneType::integer: return {v.i[lane], 0};
  }
  return {};
}

void set_lane(Lanes& v, LaneType t, int lane, Scalar s) {
  switch (t) {
  case LaneType::f32: v.f[lane] = static_cast<float>(s.f); break;
  case LaneType::f64: v.d[lane] = s.f; break;
  case LaneType::integer: v.i[lane] = s.i; break;
  }
}

void fill_lanes(Lanes& v, LaneType t, int n, Scalar s) {
  for (int l = 0; l < n; ++l) set_lane(v, t, l, s);
}

namespace {

/// Common float operators as plain loops the compiler vectorises; false: not one of them.
template <class T> bool fast_float(Op op, const T* a, const T* b, T* out, int n) {
  switch (op) {
  case Op::add:
    for (int l = 0; l < n; ++l) out[l] = a[l] + b[l];
    return true;
  case Op::sub:
    for (int l = 0; l < n; ++l) out[l] = a[l] - b[l];
    return true;
  case Op::mul:
    for (int l = 0; l < n; ++l) out[l] = a[l] * b[l];
    return true;
  case Op::div:
    for (int l = 0; l < n; ++l) out[l] = a[l] / b[l];
    return true;
  case Op::max:
    for (int l = 0; l < n; ++l) out[l] = a[l] != a[l] ? a[l] : !(a[l] >= b[l]) ? b[l] : a[l];
    return true;
  case Op::min:
    for (int l = 0; l < n; ++l) out[l] = a[l] != a[l] ? a[l] : !(a[l] <= b[l]) ? b[l] : a[l];
    return true;
  case Op::neg:
    for (int l = 0; l < n; ++l) out[l] = -a[l];
    return true;
  case Op::abs:
    for (int l = 0; l < n; ++l) out[l] = std::fabs(a[l]);
    return true;
  case Op::sqrt:
    for (int l = 0; l < n; ++l) out[l] = std::sqrt(a[l]);
    return true;
  case Op::exp:
    for (int l = 0; l < n; ++l) out[l] = std::exp(a[l]);
    return true;
  case Op::tanh:
    for (int l = 0; l < n; ++l) out[l] = std::tanh(a[l]);
    return true;
  case Op::erf:
    for (int l = 0; l < n; ++l) out[l] = std::erf(a[l]);
    return true;
  default: return false;
  }
}

template <class T> bool fast_compare(Op op, const T* a, const T* b, int64_t* out, int n) {
  switch (op) {
  case Op::equal:
    for (int l = 0; l < n; ++l) out[l] = a[l] == b[l];
    return true;
  case Op::not_equal:
    for (int l = 0; l < n; ++l) out[l] = a[l] != b[l];
    return true;
  case Op::less:
    for (int l = 0; l < n; ++l) out[l] = a[l] < b[l];
    return true;
  case Op::less_equal:
    for (int l = 0; l < n; ++l) out[l] = a[l] <= b[l];
    return true;
  case Op::greater:
    for (int l = 0; l < n; ++l) out[l] = a[l] > b[l];
    return true;
  case Op::greater_equal:
    for (int l = 0; l < n; ++l) out[l] = a[l] >= b[l];
    return true;
  default: return false;
  }
}

void where_lanes(DType type, const Lanes& c, const Lanes& t, const Lanes& f, Lanes& out, int n) {
  switch (lane_type(type)) {
  case LaneType::f32:
    for (int l = 0; l < n; ++l) out.f[l] = c.i[l] ? t.f[l] : f.f[l];
    break;
  case LaneType::f64:
    for (int l = 0; l < n; ++l) out.d[l] = c.i[l] ? t.d[l] : f.d[l];
    break;
  case LaneType::integer:
    for (int l = 0; l < n; ++l) out.i[l] = c.i[l] ? t.i[l] : f.i[l];
    break;
  }
}

} // namespace

void apply_lanes(const ExprNode& node, const Lanes* const* args, Lanes& out, int n) {
  if (node.op == Op::where) return where_lanes(node.dtype, *args[0], *args[1], *args[2], out, n);
  DType from = node.args[0]->dtype;
  LaneType in_type = lane_type(from), out_type = lane_type(node.dtype);
  const Lanes& a = *args[0];
  const Lanes& b = node.num_args > 1 ? *args[1] : a;
  bool signed_order = is_signed(from) || from == DType::boolean;
  if (is_comparison(node.op)) {
    if (in_type == LaneType::f32 && fast_compare(node.op, a.f, b.f, out.i, n)) return;
    if (in_type == LaneType::f64 && fast_compare(node.op, a.d, b.d, out.i, n)) return;
    if (in_type == LaneType::integer && signed_order && fast_compare(node.op, a.i, b.i, out.i, n)) return;
  } else if (in_type == LaneType::f32 && out_type == LaneType::f32 &&
             fast_float(node.op, a.f, b.f, out.f, n)) {
    return;
  } else if (in_type == LaneType::f64 && out_type == LaneType::f64 &&
             fast_float(node.op, a.d, b.d, out.d, n)) {
    return;
  }
  for (int l = 0; l < n; ++l) {
    Scalar x = get_lane(a, in_type, l), r;
    switch (node.op) {
    case Op::cast: r = apply_cast(from, node.dtype, x); break;
    case Op::bitcast: r = apply_bitcast(from, node.dtype, x); break;
    case Op::round_to: r = apply_round(node.format, node.bits != 0, x); break;
    default:
      r = node.num_args == 1 ? apply_unary(node.op, from, x)
                             : apply_binary(node.op, from, x, get_lane(b, in_type, l));
    }
    set_lane(out, out_type, l, r);
  }
}

Scalar load_element(DType storage, const void* base, int64_t index) {
  auto at = [&]<class T>(T) { return static_cast<const T*>(base)[index]; };
  switch (storage) {
  case DType::f32: return {0, at(float{})};
  case DType::f64: return {0, at(double{})};
  case DType::boolean: return {at(uint8_t{}) != 0, 0};
  case DType::i8:
  case DType::i4:
  case DType::i2: return {at(int8_t{}), 0};
  case DType::u8:
  case DType::u4:
  case DType::u2: return {at(uint8_t{}), 0};
  case DType::i16: return {at(int16_t{}), 0};
  case DType::u16: return {at(uint16_t{}), 0};
  case DType::i32: return {at(int32_t{}), 0};
  case DType::u32: return {at(uint32_t{}), 0};
  case DType::i64: return {at(int64_t{}), 0};
  case DType::u64: return {static_cast<int64_t>(at(uint64_t{})), 0};
  default: break;
  }
  TBX_INTERNAL(is_low_precision_float(storage));
  uint32_t bits = size_of(storage) == 2 ? at(uint16_t{}) : at(uint8_t{});
  return {0, decode_float(storage, bits)};
}

void store_element(DType storage, void* base, int64_t index, Scalar s) {
  auto put = [&]<class T>(T v) { static_cast<T*>(base)[index] = v; };
  switch (storage) {
  case DType::f32: return put(static_cast<float>(s.f));
  case DType::f64: return put(s.f);
  case DType::boolean: return put(static_cast<uint8_t>(s.i != 0));
  case DType::i8:
  case DType::i4:
  case DType::i2: return put(static_cast<int8_t>(s.i));
  case DType::u8:
  case DType::u4:
  case DType::u2: return put(static_cast<uint8_t>(s.i));
  case DType::i16: return put(static_cast<int16_t>(s.i));
  case DType::u16: return put(static_cast<uint16_t>(s.i));
  case DType::i32: return put(static_cast<int32_t>(s.i));
  case DType::u32: return put(static_cast<uint32_t>(s.i));
  case DType::i64: return put(s.i);
  case DType::u64: return put(static_cast<uint64_t>(s.i));
  default: break;
  }
  TBX_INTERNAL(is_low_precision_float(storage));
  uint32_t bits = encode_float(storage, static_cast<float>(s.f));
  if (size_of(storage) == 2) return put(static_cast<uint16_t>(bits));
  put(static_cast<uint8_t>(bits));
}

} // namespace tbx::ir
