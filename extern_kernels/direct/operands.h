// Operands of the own kernels as dense arrays of the type they compute in.
#pragma once

#include <tbb/parallel_for.h>

#include <type_traits>

#include "base/task_work.h"
#include "extern_kernels/reference/dense.h"

namespace tbx::extern_kernels::direct {

/// Calls `f(T{})` with the type that products with this result are computed in; integers are unsigned there,
/// so that they wrap. `f(nullptr)`: none.
template <class F> auto with_element(DType result, F&& f) {
  switch (result) {
  case DType::f32: return f(float{});
  case DType::f64: return f(double{});
  case DType::i32:
  case DType::u32: return f(uint32_t{});
  case DType::i64:
  case DType::u64: return f(uint64_t{});
  default: return f(nullptr);
  }
}

/// Calls `f(S{})` with the type that stores an operand of products of T.
template <class T, class F> void with_operand(DType stored, F&& f) {
  with_storage(stored, [&]<class S>(S s) {
    constexpr bool kBytes = std::is_same_v<T, float> && sizeof(S) == 1; // multiplied in float32
    if constexpr (kBytes || std::is_same_v<S, T> || (std::is_integral_v<S> && std::is_integral_v<T>))
      f(s);
    else
      TBX_INTERNAL(false); // refused_types
  });
}

/// Empty where products of these types are computed as `result`, else the reason why not.
std::string refused_types(std::span<const OperandInfo> inputs, DType result);

/// The value of a zero point; 0 where `number` is negative.
template <class T> T zero_point(std::span<const TensorRef> inputs, int number) {
  return number < 0 ? T(0) : static_cast<T>(*static_cast<const int32_t*>(inputs[number].data));
}

/// Hands out parts of a block of memory; without a block it only counts.
class Memory {
public:
  explicit Memory(void* base) : base_(static_cast<std::byte*>(base)) {}
  template <class T> T* take(int64_t count) {
    T* at = base_ ? reinterpret_cast<T*>(base_ + used_) : nullptr;
    const int64_t bytes = checked_bytes(count, sizeof(T));
    TBX_MODEL(!__builtin_add_overflow(used_, (bytes + 63) & ~int64_t{63}, &used_), "workspace too large");
    return at;
  }
  int64_t used() const { return used_; }

private:
  static int64_t checked_bytes(int64_t count, int64_t size) {
    int64_t bytes;
    TBX_MODEL(count >= 0 && !__builtin_mul_overflow(count, size, &bytes) && bytes < (int64_t{1} << 62),
              "workspace too large");
    return bytes;
  }

  std::byte* base_;
  int64_t used_ = 0;
};

/// Calls `f(begin, end)` on pieces of `count` items, side by side where the whole is worth it.
template <class F> void in_pieces(int64_t count, double work, F&& f) {
  if (count <= 1 || work < kTaskWork.operations) {
    if (count > 0) f(int64_t{0}, count);
    return;
  }
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count), [&](const auto& r) { f(r.begin(), r.end()); });
}

} // namespace tbx::extern_kernels::direct
