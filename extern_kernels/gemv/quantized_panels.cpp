#include "extern_kernels/gemv/quantized_panels.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstring>

#include "base/isa.h"
#include "base/weight_memory.h"
#include "extern_kernels/vectors.h"

namespace tbx::extern_kernels::gemv {
namespace {

// A panel is a sequence of blocks: scales, zero points (where there are any), then 32-bit words, one row of
// words after the other. The word of a column holds 32 / bits consecutive rows as signed integers, the first
// in its lowest bits, so that two shifts give the elements of a row for all columns at once.

using View = QuantizedPanels::View;

/// One body for all instruction sets, as in panels.cpp; by reference, since wide vectors have no calling
/// convention on the base target.
template <int B, int kBits> struct Body {
  using Lanes = typename VectorOf<B>::Lanes;
  using Ints = typename VectorOf<B>::Ints;
  static constexpr int64_t kBytes = B, kLanes = B / 4, kWidth = kPanelVectors * kLanes;
  static constexpr int kPerWord = 32 / kBits;

  [[gnu::always_inline]] static inline void load(Lanes& v, const std::byte* p) { __builtin_memcpy(&v, p, B); }
  /// Element `s` of each word, as floats.
  [[gnu::always_inline]] static inline void element(Lanes& v, const Ints& words, int s) {
    Ints signed_element = (words << (32 - kBits - kBits * s)) >> (32 - kBits);
    v = __builtin_convertvector(signed_element, Lanes);
  }

  /// `M` rows times the vectors [first, first + V) of the panel.
  template <int V, int M>
  [[gnu::always_inline]] static inline void tile(const View& p, int first, const float* x, int64_t stride,
                                                 const float* totals, float* sums) {
    Lanes total[M][V] = {};
    const std::byte* at = p.data + first * kBytes;
    for (int64_t b = 0; b < p.blocks; ++b) {
      Lanes scale[V], zero[V], sum[M][V] = {};
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) load(scale[v], at + v * kBytes);
      at += kPanelVectors * kBytes;
      if (p.has_zeros) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) load(zero[v], at + v * kBytes);
        at += kPanelVectors * kBytes;
      }
      const float* from = x + b * p.block;
      for (int64_t w = 0; w < p.block; w += kPerWord, at += kPanelVectors * kBytes, from += kPerWord) {
        Ints words[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          __builtin_memcpy(&words[v], at + v * kBytes, B);
          // Hardware prefetchers stop at page borders.
          __builtin_prefetch(at + v * kBytes + 4096);
        }
#pragma GCC unroll 16
        for (int s = 0; s < kPerWord; ++s) {
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) {
            Lanes e;
            element(e, words[v], s);
#pragma GCC unroll 4
            for (int m = 0; m < M; ++m) sum[m][v] += e * from[m * stride + s];
          }
        }
      }
#pragma GCC unroll 4
      for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          if (p.has_zeros) sum[m][v] -= zero[v] * totals[m * p.blocks + b];
          total[m][v] += scale[v] * sum[m][v];
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) __builtin_memcpy(sums + m * kWidth + (first + v) * kLanes, &total[m][v], B);
  }

  /// As many vectors at a time as leave the sums in registers.
  template <int V, int M>
  [[gnu::always_inline]] static inline void tiles(const View& p, const float* x, int64_t stride,
                                                  const float* totals, float* sums) {
    for (int first = 0; first < kPanelVectors; first += V) tile<V, M>(p, first, x, stride, totals, sums);
  }

  [[gnu::always_inline]] static inline void multiply(const View& p, const float* x, int64_t stride,
                                                     const float* totals, int rows, float* sums) {
    constexpr bool kManyRegisters = B == 64;
    static_assert(kTileRows == 4);
    switch (rows) {
    case 1: return tiles<4, 1>(p, x, stride, totals, sums);
    case 2: return tiles < kManyRegisters ? 4 : 2, 2 > (p, x, stride, totals, sums);
    case 3: return tiles < kManyRegisters ? 2 : 1, 3 > (p, x, stride, totals, sums);
    default: return tiles < kManyRegisters ? 2 : 1, 4 > (p, x, stride, totals, sums);
    }
  }

  /// Rows [first, end) as floats; `first` is where a row of words begins.
  template <bool kZeros>
  [[gnu::always_inline]] static inline void expand(const View& p, int64_t first, int64_t end, float* to) {
    constexpr int64_t kRow = kPanelVectors * kBytes, kHead = kZeros ? 2 : 1;
    const int64_t words = p.block / kPerWord;
    for (int64_t row = first; row < end;) {
      const int64_t b = row / p.block, stop = std::min(end, (b + 1) * p.block);
      const std::byte* block = p.data + b * (kHead + words) * kRow;
      const std::byte* at = block + (kHead + (row - b * p.block) / kPerWord) * kRow;
      Lanes scale[kPanelVectors], zero[kPanelVectors];
      for (int v = 0; v < kPanelVectors; ++v) load(scale[v], block + v * kBytes);
      if constexpr (kZeros)
        for (int v = 0; v < kPanelVectors; ++v) load(zero[v], block + kRow + v * kBytes);
      for (; row < stop; at += kRow) {
        Ints word[kPanelVectors];
        __builtin_memcpy(word, at, sizeof word);
#pragma GCC unroll 16
        for (int s = 0; s < kPerWord; ++s) {
          if (row == stop) break;
#pragma GCC unroll 4
          for (int v = 0; v < kPanelVectors; ++v) {
            Lanes e;
            element(e, word[v], s);
            if constexpr (kZeros) e -= zero[v];
            e *= scale[v];
            __builtin_memcpy(to + v * kLanes, &e, B);
          }
          to += kWidth;
          ++row;
        }
      }
    }
  }

  /// The number in every lane. The compiler loads it first and repeats it in a step of its own, which takes
  /// the place of a multiplication; the load can do that.
  [[gnu::always_inline]] static inline void repeat(Lanes& v, const float* p) {
#if defined(__x86_64__) && !defined(__clang__) // which does not know here what the function around it may use
    if constexpr (B > 16) {
      asm("vbroadcastss %1, %0" : "=v"(v) : "m"(*p));
      return;
    }
#endif
    v = Lanes{} + *p;
  }

  /// sums += `M` rows times the first `V` vectors of floats.
  template <int V, int M>
  [[gnu::always_inline]] static inline void add_tile(const float* matrix, const float* x, int64_t stride,
                                                     int64_t depth, float* sums) {
    Lanes sum[M][V];
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) __builtin_memcpy(&sum[m][v], sums + m * kWidth + v * kLanes, B);
    for (int64_t l = 0; l < depth; ++l, matrix += kWidth) {
      Lanes column[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) __builtin_memcpy(&column[v], matrix + v * kLanes, B);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        Lanes e;
        repeat(e, x + m * stride + l);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[m][v] += column[v] * e;
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) __builtin_memcpy(sums + m * kWidth + v * kLanes, &sum[m][v], B);
  }

  template <int M>
  [[gnu::always_inline]] static inline void add_rows(const float* matrix, const float* x, int64_t stride,
                                                     int64_t depth, float* sums) {
    constexpr int V = B == 64 ? 4 : 2; // as many as leave the sums in registers
    for (int first = 0; first < kPanelVectors; first += V)
      add_tile<V, M>(matrix + first * kLanes, x, stride, depth, sums + first * kLanes);
  }

  [[gnu::always_inline]] static inline void add(const float* matrix, const float* x, int64_t stride,
                                                int64_t rows, int64_t depth, float* sums) {
    constexpr int kMost = 6;
    for (; rows >= kMost; rows -= kMost, x += kMost * stride, sums += kMost * kWidth)
      add_rows<kMost>(matrix, x, stride, depth, sums);
    switch (rows) {
    case 1: return add_rows<1>(matrix, x, stride, depth, sums);
    case 2: return add_rows<2>(matrix, x, stride, depth, sums);
    case 3: return add_rows<3>(matrix, x, stride, depth, sums);
    case 4: return add_rows<4>(matrix, x, stride, depth, sums);
    case 5: return add_rows<5>(matrix, x, stride, depth, sums);
    default: return;
    }
  }

  [[gnu::always_inline]] static inline void expand(const View& p, int64_t first, int64_t end, float* to) {
    p.has_zeros ? expand<true>(p, first, end, to) : expand<false>(p, first, end, to);
  }
};

/// The kernels for one element width.
struct Kernels {
  void (*multiply)(const View&, const float*, int64_t, const float*, int, float*);
  void (*expand)(const View&, int64_t, int64_t, float*);
};
/// Those of one instruction set, by element width: 2, 4 and 8 bits.
struct InstructionSet {
  int lanes;
  void (*add)(const float*, const float*, int64_t, int64_t, int64_t, float*);
  Kernels kernels[3];
};

// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_QUANTIZED(isa, bytes, target)                                                                    \
  namespace isa {                                                                                            \
  template <int kBits>                                                                                       \
  target void multiply(const View& p, const float* x, int64_t stride, const float* totals, int rows,         \
                       float* sums) {                                                                        \
    Body<bytes, kBits>::multiply(p, x, stride, totals, rows, sums);                                          \
  }                                                                                                          \
  template <int kBits> target void expand(const View& p, int64_t first, int64_t end, float* to) {            \
    Body<bytes, kBits>::expand(p, first, end, to);                                                           \
  }                                                                                                          \
  target void add(const float* matrix, const float* x, int64_t stride, int64_t rows, int64_t depth,          \
                  float* sums) {                                                                             \
    Body<bytes, 8>::add(matrix, x, stride, rows, depth, sums);                                               \
  }                                                                                                          \
  constexpr InstructionSet kAll = {                                                                          \
      bytes / 4, add, {{multiply<2>, expand<2>}, {multiply<4>, expand<4>}, {multiply<8>, expand<8>}}};       \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_QUANTIZED(base, 16, )
#if defined(__x86_64__)
TBX_QUANTIZED(avx2, 32, __attribute__((target("avx2,fma"))))
TBX_QUANTIZED(avx512, 64, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))))
#endif
#undef TBX_QUANTIZED

const InstructionSet& best() {
  static const InstructionSet& chosen = []() -> const InstructionSet& {
#if defined(__x86_64__)
    if (host_isa() == Isa::avx512) return avx512::kAll;
    if (host_isa() >= Isa::avx2) return avx2::kAll;
#endif
    return base::kAll;
  }();
  return chosen;
}

const Kernels& kernels(int bits) { return best().kernels[bits == 2 ? 0 : bits == 4 ? 1 : 2]; }

/// The sign bit of every element of a word: turns unsigned elements into ones shifted by half their range.
uint32_t middle(int bits) { return bits == 2 ? 0xAAAAAAAAu : bits == 4 ? 0x88888888u : 0x80808080u; }

} // namespace

QuantizedPanels::QuantizedPanels(const QuantizedMatrix& m)
    : k_(m.k), n_(m.n), block_(m.block), blocks_(m.blocks()), bits_(m.bits),
      width_(best().lanes * kPanelVectors) {
  const float half = static_cast<float>(1 << (bits_ - 1));
  has_zeros_ = m.zeros && std::any_of(m.zeros, m.zeros + n_ * blocks_, [&](float z) { return z != half; });
  const int64_t words = block_ * bits_ / 32, floats = has_zeros_ ? 2 : 1;
  const int64_t block_words = (floats + words) * width_;
  panel_bytes_ = blocks_ * block_words * 4;
  memory_ = allocate_weights(bytes());
  static_assert(sizeof(float) == sizeof(uint32_t));
  tbb::parallel_for(int64_t{0}, count(), [&](int64_t p) {
    auto* panel = static_cast<std::byte*>(memory_.get()) + p * panel_bytes_;
    const int64_t first = p * width_, here = std::min<int64_t>(width_, n_ - first);
    if (here < width_) std::memset(panel, 0, static_cast<size_t>(panel_bytes_));
    for (int64_t b = 0; b < blocks_; ++b, panel += block_words * 4)
      for (int64_t j = 0; j < here; ++j) {
        const int64_t source = (first + j) * blocks_ + b;
        auto put = [&](int64_t row, const void* word) {
          std::memcpy(panel + (row * width_ + j) * 4, word, 4);
        };
        put(0, m.scales + source);
        if (has_zeros_) {
          float zero = m.zeros[source] - half;
          put(1, &zero);
        }
        for (int64_t w = 0; w < words; ++w) {
          uint32_t word;
          std::memcpy(&word, m.data + (source * words + w) * 4, 4);
          word ^= middle(bits_);
          put(floats + w, &word);
        }
      }
  });
}

View QuantizedPanels::view(int64_t panel) const {
  return {static_cast<const std::byte*>(memory_.get()) + panel * panel_bytes_, k_, blocks_, block_,
          has_zeros_};
}

void QuantizedPanels::multiply(int64_t panel, const float* x, int64_t stride, const float* totals, int rows,
                               float* sums) const {
  kernels(bits_).multiply(view(panel), x, stride, totals, rows, sums);
}

std::span<const std::byte> QuantizedPanels::part(int64_t panel, int64_t first, int64_t end) const {
  const int64_t block_bytes = panel_bytes_ / blocks_;
  int64_t begin = panel * panel_bytes_ + first / block_ * block_bytes;
  const int64_t length = std::min((end - first) / block_ * block_bytes + block_bytes, bytes() - begin);
  return {static_cast<const std::byte*>(memory_.get()) + begin,
          static_cast<size_t>(std::max<int64_t>(0, length))};
}

void QuantizedPanels::add(const float* matrix, const float* x, int64_t stride, int64_t rows, int64_t depth,
                          float* sums) {
  best().add(matrix, x, stride, rows, depth, sums);
}

void QuantizedPanels::expand(int64_t panel, int64_t first, int64_t end, float* to) const {
  kernels(bits_).expand(view(panel), first, end, to);
}

} // namespace tbx::extern_kernels::gemv
