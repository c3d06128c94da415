#include "extern_kernels/recurrent/weights.h"

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>

#include "base/isa.h"
#include "extern_kernels/panel_copy.h"
#include "extern_kernels/recurrent/pairs.h"

namespace tbx::extern_kernels::recurrent {
namespace {

template <class T> constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

/// `M` rows of states times `N` vectors of `Bytes` of a panel that has `width` elements per k, from its
/// column on that `panel` and `sums` point to. A single row with few vectors keeps two sums for each, so that
/// additions do not wait for each other. Unrolled whole: the sums must stay in registers at -O2.
template <class T, int Bytes, int M, int N>
[[gnu::always_inline]] inline void multiply_tile(const T* panel, int64_t width, const T* x, int64_t stride,
                                                 int64_t k, T* sums) {
  typedef T Lanes __attribute__((vector_size(Bytes), may_alias));
  constexpr int64_t kCount = Bytes / static_cast<int64_t>(sizeof(T));
  constexpr int kSets = M == 1 && N < 6 ? 2 : 1;
  Lanes total[kSets][M][N] = {};
  auto add = [&](int s, int64_t i) __attribute__((always_inline)) {
    const auto* at = reinterpret_cast<const Lanes*>(panel + i * width);
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
      for (int n = 0; n < N; ++n) total[s][m][n] += at[n] * x[m * stride + i];
  };
  int64_t i = 0;
  for (; i + kSets <= k; i += kSets)
#pragma GCC unroll 16
    for (int s = 0; s < kSets; ++s) add(s, i + s);
  if (kSets == 2 && i < k) add(0, i);
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int n = 0; n < N; ++n) {
      Lanes sum = total[0][m][n];
      if (kSets == 2) sum += total[kSets - 1][m][n];
      __builtin_memcpy(sums + m * width + n * kCount, &sum, sizeof sum);
    }
}

/// `M` rows times a whole panel of `V` times 64 bytes per k, `N` vectors after the other.
template <class T, int Bytes, int V, int M, int N>
[[gnu::always_inline]] inline void multiply_rows(const T* panel, const T* x, int64_t stride, int64_t k,
                                                 T* sums) {
  constexpr int kAll = V * kVectorBytes / Bytes, kCount = Bytes / static_cast<int>(sizeof(T));
  static_assert(kAll % N == 0);
  for (int n = 0; n < kAll; n += N)
    multiply_tile<T, Bytes, M, N>(panel + n * kCount, V * kLanes<T>, x, stride, k, sums + n * kCount);
}

/// Tiles whose sums and operands fit into 16 registers, of 64 bytes into 32.
template <class T, int Bytes, int V>
[[gnu::always_inline]] inline void multiply_body(const T* panel, const T* x, int64_t stride, int64_t rows,
                                                 int64_t k, T* sums) {
  constexpr bool kWide = Bytes == kVectorBytes;
  constexpr int kFew = kWide || V == 3 ? V : 2, kMany = kWide ? V : 2 * V;
  for (; rows >= 4; rows -= 4, x += 4 * stride, sums += 4 * V * kLanes<T>)
    multiply_rows<T, Bytes, V, 4, kFew>(panel, x, stride, k, sums);
  if (rows == 3)
    multiply_rows<T, Bytes, V, 3, kFew>(panel, x, stride, k, sums);
  else if (rows == 2)
    multiply_rows<T, Bytes, V, 2, V>(panel, x, stride, k, sums);
  else if (rows == 1)
    multiply_rows<T, Bytes, V, 1, kMany>(panel, x, stride, k, sums);
}

template <class T> using Multiply = void (*)(const T*, const T*, int64_t, int64_t, int64_t, T*);

template <class T, int V>
void multiply_plain(const T* panel, const T* x, int64_t stride, int64_t rows, int64_t k, T* sums) {
  multiply_body<T, 16, V>(panel, x, stride, rows, k, sums);
}
#if defined(__x86_64__)
template <class T, int V>
__attribute__((target("avx2,fma"))) void multiply_avx2(const T* panel, const T* x, int64_t stride,
                                                       int64_t rows, int64_t k, T* sums) {
  multiply_body<T, 32, V>(panel, x, stride, rows, k, sums);
}
template <class T, int V>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
multiply_avx512(const T* panel, const T* x, int64_t stride, int64_t rows, int64_t k, T* sums) {
  multiply_body<T, kVectorBytes, V>(panel, x, stride, rows, k, sums);
}
#endif

template <class T, int V> Multiply<T> best() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return multiply_avx512<T, V>;
  if (host_isa() == Isa::avx2) return multiply_avx2<T, V>;
#endif
  return multiply_plain<T, V>;
}

} // namespace

template <class T>
GateWeights<T>::GateWeights(int64_t hidden, int count, bool pairs)
    // Three or four vectors per k, whatever the number of gates.
    : hidden_(hidden), units_(kLanes<T> * (count == 1   ? 4
                                           : count == 2 ? 2
                                                        : 1)),
      count_(count), pairs_(pairs), data_(nullptr, std::free) {
  data_.reset(static_cast<T*>(std::aligned_alloc(64, static_cast<size_t>(std::max<int64_t>(64, bytes())))));
  if (!data_) throw std::bad_alloc();
}

template <class T>
template <class F>
void GateWeights<T>::for_values(int first, int64_t step, const F& put) const {
  for (int64_t p = 0; p < panels(); ++p)
    for (int64_t k = 0; k < hidden_; k += step)
      for (int g = 0; g < count_; ++g)
        for (int64_t u = 0; u < units_; ++u) {
          const int64_t unit = p * units_ + u;
          put(k, unit < hidden_ ? (first + g) * hidden_ + unit : -1);
        }
}

template <class T>
GateWeights<T>::GateWeights(const T* r, int64_t row_stride, int64_t k_stride, int64_t hidden, int first,
                            int count)
    : GateWeights(hidden, count, false) {
  T* to = data_.get();
  if constexpr (std::is_same_v<T, float>)
    if (k_stride == 1 && hidden_ % units_ == 0) { // rows of units side by side
      for (int64_t p = 0; p < panels(); ++p, to += hidden_ * width())
        for (int g = 0; g < count_; ++g)
          turn_columns(r + ((first + g) * hidden_ + p * units_) * row_stride, row_stride, hidden_, units_,
                       to + g * units_, width());
      return;
    }
  for_values(first, 1,
             [&](int64_t k, int64_t row) { *to++ = row < 0 ? T(0) : r[row * row_stride + k * k_stride]; });
}

template <class T>
GateWeights<T>::GateWeights(const uint16_t* r, int64_t row_stride, int64_t k_stride, int64_t hidden,
                            int first, int count)
    : GateWeights(hidden, count, std::is_same_v<T, float> && multiplies_pairs()) {
  auto bits = [&](int64_t k, int64_t row) -> uint32_t {
    return row < 0 || k >= hidden ? 0 : r[row * row_stride + k * k_stride];
  };
  T* to = data_.get();
  for_values(first, pairs_ ? 2 : 1, [&](int64_t k, int64_t row) {
    const uint32_t word = pairs_ ? bits(k, row) | bits(k + 1, row) << 16 : bits(k, row) << 16;
    *to++ = pairs_ ? std::bit_cast<float>(word) : static_cast<T>(std::bit_cast<float>(word));
  });
}

template <class T>
const T* GateWeights<T>::operands(const T* states, int64_t stride, int64_t rows, T* to) const {
  if (!pairs_) return states;
  if constexpr (std::is_same_v<T, float>)
    for (int64_t row = 0; row < rows; ++row)
      round_to_pairs(states + row * stride, hidden_, to + row * stride);
  return to;
}

template <class T>
void GateWeights<T>::multiply(int64_t panel, const T* states, int64_t stride, int64_t rows, T* sums) const {
  static const Multiply<T> three = best<T, 3>(), four = best<T, 4>();
  const T* from = data_.get() + panel * depth() * width();
  if constexpr (std::is_same_v<T, float>)
    if (pairs_) return multiply_pairs(from, count_ == 3 ? 3 : 4, states, stride, rows, depth(), sums);
  (count_ == 3 ? three : four)(from, states, stride, rows, hidden_, sums);
}

template class GateWeights<float>;
template class GateWeights<double>;

} // namespace tbx::extern_kernels::recurrent
