// Operands of the reference kernels as dense arrays of one accumulation type.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/float_formats.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Calls `f` with the address of every element, in row-major order of the view.
template <class F> void for_each_element(const TensorRef& t, F&& f) {
  int64_t n = t.numel();
  std::vector<int64_t> index(t.sizes.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < n; ++i) {
    f(i, at);
    for (size_t d = index.size(); d-- > 0;) {
      at += t.strides[d];
      if (++index[d] < t.sizes[d]) break;
      at -= t.strides[d] * t.sizes[d];
      index[d] = 0;
    }
  }
}

/// Calls `f(T{})` with the C++ type that stores `type`: the narrow floats as their bits.
template <class F> auto with_storage(DType type, F&& f) {
  switch (type) {
  case DType::f32: return f(float{});
  case DType::f64: return f(double{});
  case DType::i8:
  case DType::i4:
  case DType::i2: return f(int8_t{});
  case DType::u8:
  case DType::u4:
  case DType::u2:
  case DType::boolean: return f(uint8_t{});
  case DType::i16: return f(int16_t{});
  case DType::u16:
  case DType::f16:
  case DType::bf16: return f(uint16_t{});
  case DType::i32: return f(int32_t{});
  case DType::u32: return f(uint32_t{});
  case DType::i64: return f(int64_t{});
  case DType::u64: return f(uint64_t{});
  default: break;
  }
  throw_unsupported("{} elements in a reference kernel", name_of(type));
}

template <class T> std::vector<T> to_dense(const TensorRef& t) {
  std::vector<T> v(static_cast<size_t>(t.numel()));
  if (is_low_precision_float(t.dtype)) {
    bool two = size_of(t.dtype) == 2;
    for_each_element(t, [&](int64_t i, int64_t at) {
      uint32_t bits =
          two ? static_cast<const uint16_t*>(t.data)[at] : static_cast<const uint8_t*>(t.data)[at];
      v[i] = static_cast<T>(decode_float(t.dtype, bits));
    });
    return v;
  }
  with_storage(t.dtype, [&]<class S>(S) {
    for_each_element(t, [&](int64_t i, int64_t at) {
      // NOLINTNEXTLINE(bugprone-signed-char-misuse): they are numbers
      v[i] = static_cast<T>(static_cast<const S*>(t.data)[at]);
    });
  });
  return v;
}

template <class T> void from_dense(const std::vector<T>& v, const TensorRef& t) {
  if (is_low_precision_float(t.dtype)) {
    for_each_element(t, [&](int64_t i, int64_t at) {
      uint32_t bits = encode_float(t.dtype, static_cast<float>(v[i]));
      if (size_of(t.dtype) == 2)
        static_cast<uint16_t*>(t.data)[at] = static_cast<uint16_t>(bits);
      else
        static_cast<uint8_t*>(t.data)[at] = static_cast<uint8_t>(bits);
    });
    return;
  }
  with_storage(t.dtype, [&]<class S>(S) {
    for_each_element(t, [&](int64_t i, int64_t at) {
      T x = v[i];
      if constexpr (std::is_same_v<T, double> && std::is_integral_v<S> && sizeof(S) == 1)
        x = std::clamp(x, T{std::numeric_limits<S>::min()}, T{std::numeric_limits<S>::max()});
      static_cast<S*>(t.data)[at] = static_cast<S>(x);
    });
  });
}

/// Calls `f(T{})` with the accumulation type: double for floats (so f32 results are as exact as any), int64
/// for integers (wraps like the narrower types do).
template <class F> void with_accumulator(DType type, F&& f) {
  if (is_float(type))
    f(double{});
  else
    f(int64_t{});
}

/// Sums and products of integers wrap, which the operators of int64_t may not.
template <class T> T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}
template <class T> void add_to(T& sum, T x) {
  if constexpr (std::is_integral_v<T>)
    sum = static_cast<T>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(x));
  else
    sum += x;
}

/// A product of 8-bit integers, whose post-operations work in f32.
inline bool is_of_bytes(DType a, DType b) { return is_byte(a) && is_byte(b); }

/// Calls `f(T{})` with the type that a product adds in. Behind exact sums, post-operations of integers are
/// floating point.
template <class F> void with_sums_of(const std::vector<PostOp>& post_ops, DType result, F&& f) {
  with_accumulator(post_ops.empty() ? result : DType::f32, std::forward<F>(f));
}

/// Why a product is not for plain loops; empty: it is.
std::string refuse_product(const std::vector<PostOp>& post_ops, std::span<const OperandInfo> inputs,
                           std::span<const OperandInfo> outputs);

/// Subtracts the zero point of the operand `v`; none where `number` is negative.
template <class T> void subtract_zero(std::vector<T>& v, std::span<const TensorRef> inputs, int number) {
  if (number < 0) return;
  const T zero = to_dense<T>(inputs[number])[0];
  for (T& x : v) add_to(x, product_of(zero, T(-1)));
}

/// The scalar meaning of post-operations; `operand` is the extra value of binary ones.
double apply_post_op(const PostOp& op, double x, double operand);

/// Applies all of them to a dense result; operands broadcast to the shape of `out`. `in_f32`: each step is
/// rounded to that.
void apply_post_ops(const std::vector<PostOp>& ops, std::vector<double>& v, const TensorRef& out,
                    std::span<const TensorRef> inputs, bool in_f32);

/// Element of a dense array of shape `from` that broadcasts to index `i` of shape `to` (same rank).
int64_t broadcast_index(int64_t i, std::span<const int64_t> to, std::span<const int64_t> from);

} // namespace tbx::extern_kernels
