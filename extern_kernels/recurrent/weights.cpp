#include "extern_kernels/recurrent/weights.h"

#include <algorithm>
#include <new>

namespace tbx::extern_kernels::recurrent {
namespace {

template <class T> struct VectorOf { typedef T type __attribute__((vector_size(kVectorBytes), may_alias)); };
template <class T> constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

/// `M` rows of states times a panel of `V` vectors per k. A single row keeps two sums per vector, so that
/// additions do not wait for each other. Unrolled whole: the sums must stay in registers at -O2. Unrolled
/// whole: the sums must stay in registers at -O2.
template <class T, int V, int M>
[[gnu::always_inline]] inline void multiply_rows(const T* panel, const T* x, int64_t stride, int64_t k,
                                                 T* sums) {
  using Lanes = typename VectorOf<T>::type;
  constexpr int kSets = M == 1 ? 2 : 1;
  Lanes total[kSets][M][V] = {};
  int64_t i = 0;
  for (; i + kSets <= k; i += kSets) {
    const auto* at = reinterpret_cast<const Lanes*>(panel + i * V * kLanes<T>);
#pragma GCC unroll 16
    for (int s = 0; s < kSets; ++s)
#pragma GCC unroll 16
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) total[s][m][v] += at[s * V + v] * x[m * stride + i + s];
  }
  if (kSets == 2 && i < k) {
    const auto* at = reinterpret_cast<const Lanes*>(panel + i * V * kLanes<T>);
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) total[0][0][v] += at[v] * x[i];
  }
#pragma GCC unroll 16
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      Lanes sum = total[0][m][v];
      if (kSets == 2) sum += total[kSets - 1][m][v];
      __builtin_memcpy(sums + (m * V + v) * kLanes<T>, &sum, sizeof sum);
    }
}

template <class T, int V>
[[gnu::always_inline]] inline void multiply_body(const T* panel, const T* x, int64_t stride, int64_t rows,
                                                 int64_t k, T* sums) {
  for (; rows >= 4; rows -= 4, x += 4 * stride, sums += 4 * V * kLanes<T>)
    multiply_rows<T, V, 4>(panel, x, stride, k, sums);
  for (; rows > 0; --rows, x += stride, sums += V * kLanes<T>)
    multiply_rows<T, V, 1>(panel, x, stride, k, sums);
}

template <class T> using Multiply = void (*)(const T*, const T*, int64_t, int64_t, int64_t, T*);

template <class T, int V>
void multiply_plain(const T* panel, const T* x, int64_t stride, int64_t rows, int64_t k, T* sums) {
  multiply_body<T, V>(panel, x, stride, rows, k, sums);
}
#if defined(__x86_64__)
template <class T, int V>
__attribute__((target("avx2,fma"))) void multiply_avx2(const T* panel, const T* x, int64_t stride,
                                                       int64_t rows, int64_t k, T* sums) {
  multiply_body<T, V>(panel, x, stride, rows, k, sums);
}
template <class T, int V>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
multiply_avx512(const T* panel, const T* x, int64_t stride, int64_t rows, int64_t k, T* sums) {
  multiply_body<T, V>(panel, x, stride, rows, k, sums);
}
#endif

template <class T, int V> Multiply<T> best() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return multiply_avx512<T, V>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2<T, V>;
#endif
  return multiply_plain<T, V>;
}

} // namespace

template <class T>
GateWeights<T>::GateWeights(const T* r, int64_t row_stride, int64_t k_stride, int64_t hidden, int first,
                            int count)
    // Three or four vectors per k, whatever the number of gates.
    : hidden_(hidden), units_(kLanes<T> * (count == 1   ? 4
                                           : count == 2 ? 2
                                                        : 1)),
      count_(count), data_(nullptr, std::free) {
  data_.reset(static_cast<T*>(std::aligned_alloc(64, static_cast<size_t>(std::max<int64_t>(64, bytes())))));
  if (!data_) throw std::bad_alloc();
  T* to = data_.get();
  for (int64_t p = 0; p < panels(); ++p)
    for (int64_t k = 0; k < hidden_; ++k)
      for (int g = 0; g < count_; ++g)
        for (int64_t u = 0; u < units_; ++u) {
          int64_t unit = p * units_ + u;
          *to++ = unit < hidden_ ? r[((first + g) * hidden_ + unit) * row_stride + k * k_stride] : T(0);
        }
}

template <class T>
void GateWeights<T>::multiply(int64_t panel, const T* states, int64_t stride, int64_t rows, T* sums) const {
  static const Multiply<T> three = best<T, 3>(), four = best<T, 4>();
  (count_ == 3 ? three : four)(data_.get() + panel * hidden_ * width(), states, stride, rows, hidden_, sums);
}

template class GateWeights<float>;
template class GateWeights<double>;

} // namespace tbx::extern_kernels::recurrent
