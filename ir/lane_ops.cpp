#include "ir/lane_ops.h"

#include <type_traits>

#include "base/error.h"
#include "base/float_formats.h"
#include "ir/scalar_table.h"

namespace tbx::ir {
namespace {

/// Calls f(l) for l < n, in runs of constant length that compilers turn into vector code. Calls do not depend
/// on each other.
template <class F> inline void each(int n, F&& f) {
  int l = 0;
  for (; l + 16 <= n; l += 16) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
    for (int k = 0; k < 16; ++k) f(l + k);
  }
  for (; l < n; ++l) f(l);
}

template <class T> T* lanes_of(Lanes& v) {
  if constexpr (std::is_same_v<T, float>)
    return v.f;
  else if constexpr (std::is_same_v<T, double>)
    return v.d;
  else
    return v.i;
}
template <class T> const T* lanes_of(const Lanes& v) { return lanes_of<T>(const_cast<Lanes&>(v)); }

/// Calls `use` with a value of the lanes' element type.
template <class Use> void with_lane_type(DType type, Use&& use) {
  switch (lane_type(type)) {
  case LaneType::f32: return use(float{});
  case LaneType::f64: return use(double{});
  case LaneType::integer: return use(int64_t{});
  }
}

template <class T> void narrow(int64_t* v, int n) {
  each(n, [=](int l) { v[l] = int64_t{static_cast<T>(v[l])}; });
}

void wrap_lanes(DType type, int64_t* v, int n) {
  switch (type) {
  case DType::boolean: return each(n, [=](int l) { v[l] = v[l] != 0; });
  case DType::i8: return narrow<int8_t>(v, n);
  case DType::u8: return narrow<uint8_t>(v, n);
  case DType::i16: return narrow<int16_t>(v, n);
  case DType::u16: return narrow<uint16_t>(v, n);
  case DType::i32: return narrow<int32_t>(v, n);
  case DType::u32: return narrow<uint32_t>(v, n);
  default: return;
  }
}

void unary_lanes(Op op, DType type, const Lanes& a, Lanes& out, int n) {
  with_lane_type(type, [&]<class T>(T) {
    const T* x = lanes_of<T>(a);
    if constexpr (std::is_floating_point_v<T>) {
      if (op == Op::is_nan) return each(n, [=, o = out.i](int l) { o[l] = x[l] != x[l]; });
      if (op == Op::is_inf) return each(n, [=, o = out.i](int l) { o[l] = std::isinf(x[l]); });
      for_float_unary<T>(op, [&](auto f) { each(n, [=, o = lanes_of<T>(out)](int l) { o[l] = f(x[l]); }); });
    } else {
      for_integer_unary(op, type, [&](auto f) { each(n, [=, o = out.i](int l) { o[l] = f(x[l]); }); });
      wrap_lanes(type, out.i, n);
    }
  });
}

void compare_lanes(Op op, DType type, const Lanes& a, const Lanes& b, Lanes& out, int n) {
  auto compare = [&]<class T>(const T* x, const T* y) {
    for_comparison<T>(op, [&](auto f) { each(n, [=, o = out.i](int l) { o[l] = f(x[l], y[l]); }); });
  };
  if (type == DType::u64)
    return compare(reinterpret_cast<const uint64_t*>(a.i), reinterpret_cast<const uint64_t*>(b.i));
  with_lane_type(type, [&]<class T>(T) { compare(lanes_of<T>(a), lanes_of<T>(b)); });
}

void cast_lanes(DType from, DType to, const Lanes& a, Lanes& out, int n) {
  if (lane_type(from) == LaneType::integer && lane_type(to) == LaneType::integer) {
    std::copy_n(a.i, n, out.i);
    return wrap_lanes(to, out.i, n);
  }
  with_lane_type(from, [&]<class In>(In) {
    for_cast<In>(from, to, [&](auto f) {
      using Out = decltype(f(In{}));
      each(n, [=, x = lanes_of<In>(a), o = lanes_of<Out>(out)](int l) { o[l] = f(x[l]); });
    });
  });
}

void where_lanes(DType type, const Lanes& c, const Lanes& t, const Lanes& f, Lanes& out, int n) {
  with_lane_type(type, [&]<class T>(T) {
    each(n, [c = c.i, x = lanes_of<T>(t), y = lanes_of<T>(f), o = lanes_of<T>(out)](int l) {
      o[l] = c[l] ? x[l] : y[l];
    });
  });
}

/// Calls `use` with a value of the type that holds an element in memory; false for the narrow floats.
template <class Use> bool with_storage_type(DType storage, Use&& use) {
  switch (storage) {
  case DType::f32: return use(float{}), true;
  case DType::f64: return use(double{}), true;
  case DType::boolean: return use(bool{}), true;
  case DType::i8:
  case DType::i4:
  case DType::i2: return use(int8_t{}), true;
  case DType::u8:
  case DType::u4:
  case DType::u2: return use(uint8_t{}), true;
  case DType::i16: return use(int16_t{}), true;
  case DType::u16: return use(uint16_t{}), true;
  case DType::i32: return use(int32_t{}), true;
  case DType::u32: return use(uint32_t{}), true;
  case DType::i64: return use(int64_t{}), true;
  case DType::u64: return use(uint64_t{}), true;
  default: TBX_INTERNAL(is_low_precision_float(storage)); return false;
  }
}

/// Lane type of the values of memory type T.
template <class T> using LaneOf = std::conditional_t<std::is_floating_point_v<T>, T, int64_t>;

/// bool bytes of user data may be any number.
template <class T> LaneOf<T> read(const void* base, int64_t at) {
  if constexpr (std::is_same_v<T, bool>)
    return static_cast<const uint8_t*>(base)[at] != 0;
  else
    return static_cast<LaneOf<T>>(static_cast<const T*>(base)[at]);
}

template <class T> void write(void* base, int64_t at, LaneOf<T> v) {
  static_cast<T*>(base)[at] = static_cast<T>(v);
}

float read_narrow(DType storage, const void* base, int64_t at) {
  return decode_float(storage, size_of(storage) == 2 ? static_cast<const uint16_t*>(base)[at]
                                                     : static_cast<const uint8_t*>(base)[at]);
}

void write_narrow(DType storage, void* base, int64_t at, float v) {
  // Infinity is a value of f8e5m2 that a cast without saturation makes: storing must keep it.
  uint32_t bits = encode_float(storage, v, storage != DType::f8e5m2);
  if (size_of(storage) == 2)
    static_cast<uint16_t*>(base)[at] = static_cast<uint16_t>(bits);
  else
    static_cast<uint8_t*>(base)[at] = static_cast<uint8_t>(bits);
}

/// Calls body(lane, address) for the lanes the mask lets through, `skipped(lane)` for the others.
template <class Body, class Skipped>
void each_address(const LaneAddress& address, const Lanes* mask, int n, Body&& body, Skipped&& skipped) {
  if (mask) {
    for (int l = 0; l < n; ++l)
      if (mask->i[l])
        body(l, address.of(l));
      else
        skipped(l);
  } else if (address.at) {
    for (int l = 0; l < n; ++l) body(l, address.at[l]); // in order: stores may collide
  } else if (address.step == 1) {
    each(n, [&, first = address.first](int l) { body(l, first + l); });
  } else {
    each(n, [&, first = address.first, step = address.step](int l) { body(l, first + step * l); });
  }
}

} // namespace

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
  switch (t) {
  case LaneType::f32: std::fill_n(v.f, n, static_cast<float>(s.f)); break;
  case LaneType::f64: std::fill_n(v.d, n, s.f); break;
  case LaneType::integer: std::fill_n(v.i, n, s.i); break;
  }
}

void apply_binary_lanes(Op op, DType type, const Lanes& a, const Lanes& b, Lanes& out, int n) {
  if (is_comparison(op)) return compare_lanes(op, type, a, b, out, n);
  if (op == Op::random) {
    for (int l = 0; l < n; ++l) out.f[l] = philox_uniform(a.i[l], b.i[l]);
    return;
  }
  with_lane_type(type, [&]<class T>(T) {
    const T *x = lanes_of<T>(a), *y = lanes_of<T>(b);
    auto loop = [&](auto f) { each(n, [=, o = lanes_of<T>(out)](int l) { o[l] = f(x[l], y[l]); }); };
    if constexpr (std::is_floating_point_v<T>) {
      for_float_binary<T>(op, loop);
    } else {
      for_integer_binary(op, type, loop);
      wrap_lanes(type, out.i, n);
    }
  });
}

void apply_lanes(const ExprNode& node, const Lanes* const* args, Lanes& out, int n) {
  DType from = node.args[0]->dtype;
  switch (node.op) {
  case Op::where: return where_lanes(node.dtype, *args[0], *args[1], *args[2], out, n);
  case Op::cast: return cast_lanes(from, node.dtype, *args[0], out, n);
  case Op::round_to:
    for (int l = 0; l < n; ++l)
      out.f[l] = decode_float(node.format, encode_float(node.format, args[0]->f[l], node.bits != 0));
    return;
  case Op::bitcast:
    for (int l = 0; l < n; ++l)
      set_lane(out, lane_type(node.dtype), l,
               apply_bitcast(from, node.dtype, get_lane(*args[0], lane_type(from), l)));
    return;
  default:
    if (node.num_args == 1) return unary_lanes(node.op, from, *args[0], out, n);
    return apply_binary_lanes(node.op, from, *args[0], *args[1], out, n);
  }
}

void load_lanes(DType storage, const void* base, const LaneAddress& address, const Lanes* mask, Lanes& out,
                int n) {
  bool plain = with_storage_type(storage, [&]<class T>(T) {
    auto* o = lanes_of<LaneOf<T>>(out);
    each_address(
        address, mask, n, [=](int l, int64_t at) { o[l] = read<T>(base, at); }, [=](int l) { o[l] = 0; });
  });
  if (plain) return;
  each_address(
      address, mask, n, [&](int l, int64_t at) { out.f[l] = read_narrow(storage, base, at); },
      [&](int l) { out.f[l] = 0; });
}

void store_lanes(DType storage, void* base, const LaneAddress& address, const Lanes* mask, const Lanes& v,
                 int n) {
  bool plain = with_storage_type(storage, [&]<class T>(T) {
    const auto* x = lanes_of<LaneOf<T>>(v);
    each_address(
        address, mask, n, [=](int l, int64_t at) { write<T>(base, at, x[l]); }, [](int) {});
  });
  if (plain) return;
  each_address(
      address, mask, n, [&](int l, int64_t at) { write_narrow(storage, base, at, v.f[l]); }, [](int) {});
}

Scalar load_element(DType storage, const void* base, int64_t index) {
  Scalar s;
  bool plain = with_storage_type(storage, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>)
      s.f = read<T>(base, index);
    else
      s.i = read<T>(base, index);
  });
  if (!plain) s.f = read_narrow(storage, base, index);
  return s;
}

void store_element(DType storage, void* base, int64_t index, Scalar s) {
  bool plain = with_storage_type(storage, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>)
      write<T>(base, index, static_cast<T>(s.f));
    else
      write<T>(base, index, s.i);
  });
  if (!plain) write_narrow(storage, base, index, static_cast<float>(s.f));
}

} // namespace tbx::ir
