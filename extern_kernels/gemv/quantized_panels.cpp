#include "extern_kernels/gemv/quantized_panels.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstring>

#include "base/memory.h"

namespace tbx::extern_kernels::gemv {
namespace {

// A panel is a sequence of blocks: scales, zero points (where there are any), then 32-bit words, one row of
// words after the other. The word of a column holds 32 / bits consecutive rows as signed integers, the first
// in its lowest bits, so that two shifts give the elements of a row for all columns at once.

using View = QuantizedPanels::View;

template <int B> struct VectorOf;
template <> struct VectorOf<16> {
  typedef float Lanes __attribute__((vector_size(16), may_alias));
  typedef int32_t Ints __attribute__((vector_size(16), may_alias));
};
template <> struct VectorOf<32> {
  typedef float Lanes __attribute__((vector_size(32), may_alias));
  typedef int32_t Ints __attribute__((vector_size(32), may_alias));
};
template <> struct VectorOf<64> {
  typedef float Lanes __attribute__((vector_size(64), may_alias));
  typedef int32_t Ints __attribute__((vector_size(64), may_alias));
};

/// One body for all instruction sets, as in panels.cpp; by reference, since wide vectors have no calling
/// convention on the base target.
template <int B, int kBits> struct Body {
  using Lanes = typename VectorOf<B>::Lanes;
  using Ints = typename VectorOf<B>::Ints;
  static constexpr int kLanes = B / 4, kWidth = kPanelVectors * kLanes, kPerWord = 32 / kBits;

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
    const std::byte* at = p.data + first * B;
    for (int64_t b = 0; b < p.blocks; ++b) {
      Lanes scale[V], zero[V], sum[M][V] = {};
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) load(scale[v], at + v * B);
      at += kPanelVectors * B;
      if (p.has_zeros) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) load(zero[v], at + v * B);
        at += kPanelVectors * B;
      }
      const float* from = x + b * p.block;
      for (int64_t w = 0; w < p.block; w += kPerWord, at += kPanelVectors * B, from += kPerWord) {
        Ints words[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
          __builtin_memcpy(&words[v], at + v * B, B);
          // Hardware prefetchers stop at page borders.
          __builtin_prefetch(at + v * B + 4096);
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

  [[gnu::always_inline]] static inline void expand(const View& p, float* to, int64_t stride) {
    const std::byte* at = p.data;
    for (int64_t row = 0; row < p.k;) {
      Lanes scale[kPanelVectors], zero[kPanelVectors] = {};
      for (int v = 0; v < kPanelVectors; ++v) load(scale[v], at + v * B);
      at += kPanelVectors * B;
      if (p.has_zeros) {
        for (int v = 0; v < kPanelVectors; ++v) load(zero[v], at + v * B);
        at += kPanelVectors * B;
      }
      for (int64_t w = 0; w < p.block && row < p.k; w += kPerWord, at += kPanelVectors * B) {
        Ints words[kPanelVectors];
        __builtin_memcpy(words, at, sizeof words);
#pragma GCC unroll 16
        for (int s = 0; s < kPerWord; ++s) {
          if (row == p.k) break;
#pragma GCC unroll 4
          for (int v = 0; v < kPanelVectors; ++v) {
            Lanes e;
            element(e, words[v], s);
            e = (e - zero[v]) * scale[v];
            __builtin_memcpy(to + row * stride + v * kLanes, &e, B);
          }
          ++row;
        }
      }
    }
  }
};

/// The kernels for one element width.
struct Kernels {
  void (*multiply)(const View&, const float*, int64_t, const float*, int, float*);
  void (*expand)(const View&, float*, int64_t);
};
/// Those of one instruction set, by element width: 2, 4 and 8 bits.
struct InstructionSet {
  int lanes;
  Kernels kernels[3];
};

#define TBX_QUANTIZED(isa, bytes, target)                                                                    \
  namespace isa {                                                                                            \
  template <int kBits>                                                                                       \
  target void multiply(const View& p, const float* x, int64_t stride, const float* totals, int rows,         \
                       float* sums) {                                                                        \
    Body<bytes, kBits>::multiply(p, x, stride, totals, rows, sums);                                          \
  }                                                                                                          \
  template <int kBits> target void expand(const View& p, float* to, int64_t stride) {                        \
    Body<bytes, kBits>::expand(p, to, stride);                                                               \
  }                                                                                                          \
  constexpr InstructionSet kAll = {                                                                          \
      bytes / 4, {{multiply<2>, expand<2>}, {multiply<4>, expand<4>}, {multiply<8>, expand<8>}}};            \
  }

TBX_QUANTIZED(base, 16, )
#if defined(__x86_64__)
TBX_QUANTIZED(avx2, 32, __attribute__((target("avx2,fma"))))
TBX_QUANTIZED(avx512, 64, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))))
#endif
#undef TBX_QUANTIZED

const InstructionSet& best() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return avx512::kAll;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2::kAll;
#endif
  return base::kAll;
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
  memory_ = allocate_aligned(bytes());
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

void QuantizedPanels::expand(int64_t panel, float* to, int64_t stride) const {
  kernels(bits_).expand(view(panel), to, stride);
}

} // namespace tbx::extern_kernels::gemv
