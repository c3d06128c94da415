#include "extern_kernels/gemv/panels.h"

#include "base/isa.h"
#include "base/weight_memory.h"
#include "base/widen_f16.h"
#include "extern_kernels/vectors.h"

namespace tbx::extern_kernels::gemv {
namespace {

/// One body for all instruction sets, of vectors of `B` bytes; by reference, since wide vectors have no
/// calling convention on the base target.
template <DType type, int B> struct Body {
  using Lanes = typename VectorOf<B>::Lanes;
  using Words = typename VectorOf<B>::Words;
  using Halves = typename VectorOf<B>::Halves;
  static constexpr int64_t kLanes = B / 4, kTogether = B == 64 ? 4 : 8; ///< vectors of columns at a time
  static constexpr int64_t kRows =
      B == 64 ? 2 : 1; ///< as many sums of a column: all of them fit into registers
  static constexpr int64_t kWidth = type == DType::f32 ? 4 : 2, kRow = kPanel * kWidth,
                           kVector = kLanes * kWidth;
  // Hardware prefetchers stop at page borders; two pages ahead keeps the memory busy across them.
  static constexpr int64_t kAhead = 4096, kLine = 64;
  static_assert(kPanel % (kLanes * kTogether) == 0);

  /// Elements as f32. All three are bits and sums, which every instruction set has; f16 would be one
  /// instruction with F16C, but reading is what takes the time.
  [[gnu::always_inline]] static inline void load(Lanes& v, const std::byte* from) {
    if constexpr (type == DType::f32) {
      __builtin_memcpy(&v, from, B);
    } else {
      Halves halves;
      __builtin_memcpy(&halves, from, B / 2);
      const Words bits = __builtin_convertvector(halves, Words);
      if constexpr (type == DType::bf16) {
        v = reinterpret_cast<Lanes>(bits << 16);
      } else {
        widen_f16(bits, v);
      }
    }
  }

  /// `R` rows times the vectors that are computed together.
  template <int R>
  [[gnu::always_inline]] static inline void add(Lanes (&sums)[kRows][kTogether], const std::byte* rows,
                                                const float* x) {
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kTogether; ++v) {
        Lanes row;
        load(row, rows + r * kRow + v * kVector);
        sums[r][v] += row * x[r];
      }
  }

  [[gnu::always_inline]] static inline void multiply(const std::byte* panel, const float* x, int64_t k,
                                                     float* to) {
    for (int64_t first = 0; first < kPanel; first += kLanes * kTogether) {
      const std::byte* rows = panel + first * kWidth;
      Lanes sums[kRows][kTogether] = {};
      int64_t i = 0;
      for (; i + kRows <= k; i += kRows, rows += kRows * kRow) {
#pragma GCC unroll 8
        for (int64_t at = 0; at < kRows * kTogether * kVector; at += kLine)
          __builtin_prefetch(rows + kAhead + at);
        add<kRows>(sums, rows, x + i);
      }
      if (i < k) add<1>(sums, rows, x + i);
      for (int v = 0; v < kTogether; ++v) {
        if constexpr (kRows == 2) sums[0][v] += sums[1][v];
        __builtin_memcpy(to + first + v * kLanes, &sums[0][v], B);
      }
    }
  }
};

template <DType type> void multiply_plain(const std::byte* panel, const float* x, int64_t k, float* sums) {
  Body<type, 16>::multiply(panel, x, k, sums);
}
#if defined(__x86_64__)
template <DType type>
__attribute__((target("avx2,fma"))) void multiply_avx2(const std::byte* panel, const float* x, int64_t k,
                                                       float* sums) {
  Body<type, 32>::multiply(panel, x, k, sums);
}
template <DType type>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
multiply_avx512(const std::byte* panel, const float* x, int64_t k, float* sums) {
  Body<type, 64>::multiply(panel, x, k, sums);
}
#endif

template <DType type> auto best_multiply() {
#if defined(__x86_64__)
  if (host_isa() == Isa::avx512) return multiply_avx512<type>;
  if (host_isa() >= Isa::avx2) return multiply_avx2<type>;
#endif
  return multiply_plain<type>;
}

} // namespace

Panels::Panels(const void* data, DType type, int64_t k, int64_t n, int64_t row_stride, int64_t column_stride,
               const Copied& copied)
    : k_(k), n_(n), type_(type), memory_(allocate_weights(bytes())),
      data_(static_cast<std::byte*>(memory_.get())),
      multiply_(type == DType::f32    ? best_multiply<DType::f32>()
                : type == DType::bf16 ? best_multiply<DType::bf16>()
                                      : best_multiply<DType::f16>()) {
  if (type == DType::f32)
    copy_panels(static_cast<const float*>(data), reinterpret_cast<float*>(data_), kPanel, k, n, row_stride,
                column_stride, copied);
  else
    copy_panels(static_cast<const uint16_t*>(data), reinterpret_cast<uint16_t*>(data_), kPanel, k, n,
                row_stride, column_stride, copied);
}

void Panels::multiply(int64_t panel, const float* x, std::span<float, kPanel> sums) const {
  multiply_(data_ + panel * k_ * kPanel * size_of(type_), x, k_, sums.data());
}

} // namespace tbx::extern_kernels::gemv
