#include "extern_kernels/gemv/panels.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <bit>

#include "base/memory.h"

namespace tbx::extern_kernels::gemv {
namespace {

#pragma GCC diagnostic ignored "-Wpsabi" // no function that returns vectors is called from elsewhere
typedef float Lanes __attribute__((vector_size(64), may_alias));
typedef uint32_t Words __attribute__((vector_size(64), may_alias));
typedef uint16_t Halves __attribute__((vector_size(32), may_alias));
constexpr int kVectors = kPanel / 16;

/// Sixteen elements as f32. All three are bits and products, which every instruction set has; f16 would be
/// one instruction with F16C, but reading is what takes the time.
template <DType type> [[gnu::always_inline]] inline Lanes load(const std::byte* from) {
  if constexpr (type == DType::f32) {
    return *reinterpret_cast<const Lanes*>(from);
  } else {
    const Words bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Words);
    if constexpr (type == DType::bf16) {
      return std::bit_cast<Lanes>(bits << 16);
    } else {
      // As in decode_halves: exponents differ by 112, the product also makes denormals normal.
      const Words magnitude = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
      const auto finite = std::bit_cast<Words>(std::bit_cast<Lanes>(magnitude) * 0x1p112f);
      const Words special = std::bit_cast<Words>(magnitude >= (0x7c00u << 13)) & 0x7f800000u;
      return std::bit_cast<Lanes>(finite | special | sign);
    }
  }
}

/// One body for all instruction sets: the compiler splits the vectors as its caller's target has them. Two
/// rows at a time give each column two sums.
template <DType type>
[[gnu::always_inline]] inline void multiply_body(const std::byte* panel, const float* x, int64_t k,
                                                 float* sums) {
  constexpr int64_t kWidth = type == DType::f32 ? 4 : 2, kRow = kPanel * kWidth, kVector = 16 * kWidth;
  // Hardware prefetchers stop at page borders; two pages ahead keeps the memory busy across them.
  constexpr int64_t kAhead = 4096, kLine = 64;
  Lanes even[kVectors] = {}, odd[kVectors] = {};
  int64_t i = 0;
  for (; i + 2 <= k; i += 2) {
    const std::byte* rows = panel + i * kRow;
    for (int64_t at = 0; at < 2 * kRow; at += kLine) __builtin_prefetch(rows + kAhead + at);
    for (int v = 0; v < kVectors; ++v) even[v] += load<type>(rows + v * kVector) * x[i];
    for (int v = 0; v < kVectors; ++v) odd[v] += load<type>(rows + kRow + v * kVector) * x[i + 1];
  }
  if (i < k)
    for (int v = 0; v < kVectors; ++v) even[v] += load<type>(panel + i * kRow + v * kVector) * x[i];
  for (int v = 0; v < kVectors; ++v) {
    Lanes sum = even[v] + odd[v];
    __builtin_memcpy(sums + int64_t{16} * v, &sum, sizeof sum);
  }
}

template <DType type> void multiply_plain(const std::byte* panel, const float* x, int64_t k, float* sums) {
  multiply_body<type>(panel, x, k, sums);
}
#if defined(__x86_64__)
template <DType type>
__attribute__((target("avx2,fma"))) void multiply_avx2(const std::byte* panel, const float* x, int64_t k,
                                                       float* sums) {
  multiply_body<type>(panel, x, k, sums);
}
template <DType type>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
multiply_avx512(const std::byte* panel, const float* x, int64_t k, float* sums) {
  multiply_body<type>(panel, x, k, sums);
}
#endif

template <DType type> auto best_multiply() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return multiply_avx512<type>;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return multiply_avx2<type>;
#endif
  return multiply_plain<type>;
}

/// Rows [first, last) of a matrix that is stored by rows, into all panels.
template <class T>
void copy_rows(const T* data, T* panels, int64_t k, int64_t n, int64_t row_stride, int64_t first,
               int64_t last) {
  tbb::parallel_for(int64_t{0}, (n + kPanel - 1) / kPanel, [&](int64_t p) {
    T* to = panels + p * k * kPanel;
    const int64_t begin = p * kPanel, width = std::min<int64_t>(kPanel, n - begin);
    if (width < kPanel) std::fill_n(to + first * kPanel, (last - first) * kPanel, T{});
    for (int64_t i = first; i < last; ++i) std::copy_n(data + begin + i * row_stride, width, to + i * kPanel);
  });
}

/// Columns [first, last) of one that is stored by columns, whole panels of them.
template <class T>
void copy_columns(const T* data, T* panels, int64_t k, int64_t row_stride, int64_t column_stride,
                  int64_t first, int64_t last) {
  tbb::parallel_for(first / kPanel, (last + kPanel - 1) / kPanel, [&](int64_t p) {
    T* to = panels + p * k * kPanel;
    const int64_t begin = p * kPanel, width = std::min<int64_t>(kPanel, last - begin);
    const T* from = data + begin * column_stride;
    if (width < kPanel) std::fill_n(to, k * kPanel, T{});
    // Blocks of rows keep the lines of all columns of the panel in the cache.
    constexpr int64_t kRows = 16;
    for (int64_t row = 0; row < k; row += kRows)
      for (int64_t j = 0; j < width; ++j)
        for (int64_t i = row; i < std::min(row + kRows, k); ++i)
          to[i * kPanel + j] = from[i * row_stride + j * column_stride];
  });
}

/// Strip by strip of the matrix as it is stored: what lies between is read by nobody, for the system brings
/// in pages by the dozen.
template <class T>
void copy_strips(const T* data, T* panels, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
                 const Panels::Copied& copied) {
  constexpr int64_t kStrip = (8 << 20) / sizeof(T);
  const bool by_rows = column_stride == 1;
  const int64_t line = by_rows ? row_stride : column_stride, lines = by_rows ? k : n;
  const int64_t of_line = by_rows ? n : (k - 1) * row_stride + 1; // elements from its first to its last
  const int64_t step = std::max<int64_t>(kPanel, kStrip / std::max<int64_t>(1, line) / kPanel * kPanel);
  for (int64_t first = 0; first < lines; first += step) {
    const int64_t last = std::min(first + step, lines);
    if (by_rows)
      copy_rows(data, panels, k, n, row_stride, first, last);
    else
      copy_columns(data, panels, k, row_stride, column_stride, first, last);
    if (copied)
      copied(data + first * line, ((last - first - 1) * line + of_line) * static_cast<int64_t>(sizeof(T)));
  }
}

} // namespace

Panels::Panels(const void* data, DType type, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
               const Copied& copied)
    : k_(k), n_(n), type_(type), memory_(allocate_aligned(bytes())),
      data_(static_cast<std::byte*>(memory_.get())),
      multiply_(type == DType::f32    ? best_multiply<DType::f32>()
                : type == DType::bf16 ? best_multiply<DType::bf16>()
                                      : best_multiply<DType::f16>()) {
  if (type == DType::f32)
    copy_strips(static_cast<const float*>(data), reinterpret_cast<float*>(data_), k, n, row_stride,
                column_stride, copied);
  else
    copy_strips(static_cast<const uint16_t*>(data), reinterpret_cast<uint16_t*>(data_), k, n, row_stride,
                column_stride, copied);
}

void Panels::multiply(int64_t panel, const float* x, std::span<float, kPanel> sums) const {
  multiply_(data_ + panel * k_ * kPanel * size_of(type_), x, k_, sums.data());
}

} // namespace tbx::extern_kernels::gemv
