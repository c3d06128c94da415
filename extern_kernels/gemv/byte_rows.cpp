#include "extern_kernels/gemv/byte_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tbx::extern_kernels::gemv {
namespace {

/// The step of `n` floats, and its inverse: 0 when all are 0.
float step_of(const float* x, int64_t n, float& inverse) {
  float most = 0;
  for (int64_t j = 0; j < n; ++j) most = std::max(most, std::fabs(x[j]));
  inverse = most == 0 ? 0 : 127 / most;
  return most / 127;
}

#if defined(__x86_64__)
#define TBX_VNNI __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512vnni,fma")))

// Shifts and conversions are written with these: what GCC 12's header has for them warns.
typedef uint32_t Words __attribute__((vector_size(64), may_alias));
typedef int32_t Ints __attribute__((vector_size(64), may_alias));
typedef float Lanes __attribute__((vector_size(64), may_alias));

struct Row {
  const int8_t* bytes;
  const float* steps;
  const int32_t* sums;
};

/// `M` rows times the vectors [first, first + V) of the panel. A word holds 32 / kBits elements of a column;
/// after a shift by s * kBits its four bytes hold the elements s, s + 8 / kBits, ...: the order of the bytes
/// of a row.
template <int kBits, int V, int M>
TBX_VNNI void tile(const QuantizedPanels::View& p, int first, const Row* rows, float* sums) {
  constexpr int kPerWord = 32 / kBits, kSteps = 8 / kBits, kVector = 64,
                kPanelBytes = kPanelVectors * kVector;
  constexpr int kHalf = 1 << (kBits - 1);
  // Elements are stored around zero; the product takes them from 0 on.
  const __m512i middle = _mm512_set1_epi8(static_cast<char>(kBits == 8 ? 0x80 : kBits == 4 ? 0x88 : 0xAA));
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << kBits) - 1));
  __m512 total[M][V];
#pragma GCC unroll 16
  for (int i = 0; i < M * V; ++i) total[i / V][i % V] = _mm512_setzero_ps();
  const std::byte* at = p.data + first * kVector;
  for (int64_t b = 0; b < p.blocks; ++b) {
    const std::byte* scales = at;
    at += kPanelBytes;
    const std::byte* zeros = at;
    if (p.has_zeros) at += kPanelBytes;
    __m512i sum[M][V];
#pragma GCC unroll 16
    for (int i = 0; i < M * V; ++i) sum[i / V][i % V] = _mm512_setzero_si512();
    for (int64_t w = 0; w < p.block; w += kPerWord, at += kPanelBytes) {
      __m512i words[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        words[v] = _mm512_xor_si512(_mm512_loadu_si512(at + v * kVector), middle);
        __builtin_prefetch(at + v * kVector + 4096); // hardware prefetchers stop at page borders
      }
#pragma GCC unroll 4
      for (int s = 0; s < kSteps; ++s) {
        __m512i elements[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) elements[v] = (__m512i)(((Words)words[v] >> (s * kBits)) & (Words)mask);
#pragma GCC unroll 4
        for (int m = 0; m < M; ++m) {
          int32_t four;
          std::memcpy(&four, rows[m].bytes + b * p.block + w + s * 4, 4);
          const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v) sum[m][v] = _mm512_dpbusd_epi32(sum[m][v], elements[v], x);
        }
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const int32_t of_block = rows[m].sums[b];
      const __m512 step = _mm512_set1_ps(rows[m].steps[b]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        auto f = (__m512) __builtin_convertvector((Ints)sum[m][v] - of_block * kHalf, Lanes);
        if (p.has_zeros)
          f = _mm512_fnmadd_ps(_mm512_loadu_ps(zeros + v * kVector),
                               _mm512_set1_ps(static_cast<float>(of_block)), f);
        total[m][v] =
            _mm512_fmadd_ps(f, _mm512_mul_ps(_mm512_loadu_ps(scales + v * kVector), step), total[m][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M * V; ++i)
    _mm512_storeu_ps(sums + (i / V) * kPanelVectors * 16 + (first + i % V) * 16, total[i / V][i % V]);
}

template <int kBits, int V, int M> void tiles(const QuantizedPanels::View& p, const Row* rows, float* sums) {
  for (int first = 0; first < kPanelVectors; first += V) tile<kBits, V, M>(p, first, rows, sums);
}

template <int kBits> void product(const QuantizedPanels::View& p, const Row* rows, int count, float* sums) {
  static_assert(kTileRows == 4);
  switch (count) {
  case 1: return tiles<kBits, 4, 1>(p, rows, sums);
  case 2: return tiles<kBits, 4, 2>(p, rows, sums);
  case 3: return tiles<kBits, 2, 3>(p, rows, sums);
  default: return tiles<kBits, 2, 4>(p, rows, sums);
  }
}
#undef TBX_VNNI
#endif

} // namespace

ByteRows::ByteRows(const float* x, int64_t rows, int64_t k, int64_t stride, int64_t block, int bits)
    : k_(k), block_(block), blocks_(k / block), bits_(bits), bytes_(static_cast<size_t>(rows * k)),
      steps_(static_cast<size_t>(rows * blocks_)), sums_(steps_.size()) {
  const int64_t per_word = 32 / bits, steps = 8 / bits;
  for (int64_t i = 0; i < rows * blocks_; ++i) {
    const int64_t row = i / blocks_, first = i % blocks_ * block;
    const float* from = x + row * stride + first;
    float inverse;
    steps_[i] = step_of(from, block, inverse);
    int8_t* to = bytes_.data() + row * k + first;
    int32_t sum = 0;
    for (int64_t j = 0; j < block; ++j) {
      const auto q = static_cast<int8_t>(std::nearbyint(from[j] * inverse));
      const int64_t in_word = j % per_word;
      to[j - in_word + in_word % steps * 4 + in_word / steps] = q;
      sum += q;
    }
    sums_[i] = sum;
  }
}

bool ByteRows::usable([[maybe_unused]] int64_t block, [[maybe_unused]] int bits) {
#if defined(__x86_64__)
  // Panels are as wide as the kernel takes them where these instructions are.
  static const bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                          __builtin_cpu_supports("avx512vnni");
  return has && block <= INT32_MAX / 127 >> bits;
#else
  return false;
#endif
}

void ByteRows::multiply([[maybe_unused]] const QuantizedPanels& m, [[maybe_unused]] int64_t panel,
                        [[maybe_unused]] int64_t first, [[maybe_unused]] int rows,
                        [[maybe_unused]] float* sums) const {
#if defined(__x86_64__)
  Row row[kTileRows];
  for (int i = 0; i < rows; ++i)
    row[i] = {bytes_.data() + (first + i) * k_, steps_.data() + (first + i) * blocks_,
              sums_.data() + (first + i) * blocks_};
  const QuantizedPanels::View view = m.view(panel);
  if (bits_ == 2)
    product<2>(view, row, rows, sums);
  else if (bits_ == 4)
    product<4>(view, row, rows, sums);
  else
    product<8>(view, row, rows, sums);
#endif
}

void round_to_bytes(float* x, int64_t n, int64_t block) {
  for (int64_t first = 0; first < n; first += block) {
    float inverse;
    const float step = step_of(x + first, std::min(block, n - first), inverse);
    for (int64_t j = first; j < std::min(n, first + block); ++j) x[j] = std::nearbyint(x[j] * inverse) * step;
  }
}

} // namespace tbx::extern_kernels::gemv
