#include "extern_kernels/gemv/panels.h"

#include <tbb/parallel_for.h>

#include <algorithm>

#include "base/memory.h"

namespace tbx::extern_kernels::gemv {
namespace {

typedef float Lanes __attribute__((vector_size(64), may_alias));
constexpr int kVectors = kPanel / 16;

/// One body for all instruction sets: the compiler splits the vectors as its caller's target has them. Two
/// rows at a time give each column two sums.
[[gnu::always_inline]] inline void multiply_body(const float* panel, const float* x, int64_t k, float* sums) {
  // Hardware prefetchers stop at page borders; two pages ahead keeps the memory busy across them.
  constexpr int64_t kAhead = 4096 / sizeof(float);
  Lanes even[kVectors] = {}, odd[kVectors] = {};
  int64_t i = 0;
  for (; i + 2 <= k; i += 2) {
    const auto* rows = reinterpret_cast<const Lanes*>(panel + i * kPanel);
    for (int v = 0; v < 2 * kVectors; ++v) __builtin_prefetch(panel + i * kPanel + kAhead + v * 16);
    for (int v = 0; v < kVectors; ++v) even[v] += rows[v] * x[i];
    for (int v = 0; v < kVectors; ++v) odd[v] += rows[kVectors + v] * x[i + 1];
  }
  if (i < k)
    for (int v = 0; v < kVectors; ++v)
      even[v] += reinterpret_cast<const Lanes*>(panel + i * kPanel)[v] * x[i];
  for (int v = 0; v < kVectors; ++v) {
    Lanes sum = even[v] + odd[v];
    __builtin_memcpy(sums + v * 16, &sum, sizeof sum);
  }
}

void multiply_plain(const float* panel, const float* x, int64_t k, float* sums) {
  multiply_body(panel, x, k, sums);
}
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void multiply_avx2(const float* panel, const float* x, int64_t k,
                                                       float* sums) {
  multiply_body(panel, x, k, sums);
}
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
multiply_avx512(const float* panel, const float* x, int64_t k, float* sums) {
  multiply_body(panel, x, k, sums);
}
#endif

auto best_multiply() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return multiply_avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2;
#endif
  return multiply_plain;
}

} // namespace

Panels::Panels(const float* data, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride)
    : k_(k), n_(n), memory_(allocate_aligned(bytes())), data_(static_cast<float*>(memory_.get())),
      multiply_(best_multiply()) {
  tbb::parallel_for(int64_t{0}, count(), [&](int64_t p) {
    float* to = data_ + p * k_ * kPanel;
    const int64_t begin = p * kPanel, width = std::min<int64_t>(kPanel, n_ - begin);
    const float* from = data + begin * column_stride;
    if (width < kPanel) std::fill_n(to, k_ * kPanel, 0.0f);
    if (column_stride == 1) {
      for (int64_t i = 0; i < k_; ++i) std::copy_n(from + i * row_stride, width, to + i * kPanel);
      return;
    }
    // Stored by columns: blocks of rows keep the lines of all columns of the panel in the cache.
    constexpr int64_t kRows = 16;
    for (int64_t first = 0; first < k_; first += kRows)
      for (int64_t j = 0; j < width; ++j)
        for (int64_t i = first; i < std::min(first + kRows, k_); ++i)
          to[i * kPanel + j] = from[i * row_stride + j * column_stride];
  });
}

void Panels::multiply(int64_t panel, const float* x, std::span<float, kPanel> sums) const {
  multiply_(data_ + panel * k_ * kPanel, x, k_, sums.data());
}

} // namespace tbx::extern_kernels::gemv
