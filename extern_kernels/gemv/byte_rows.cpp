#include "extern_kernels/gemv/byte_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/isa.h"
#include "base/rounding.h"
#include "extern_kernels/direct/operands.h"

namespace tbx::extern_kernels::gemv {
namespace {

/// What the greatest element of a block becomes, so that no digit leaves [-128, 127].
constexpr float greatest(int digits) { return digits == 1 ? 127 : 127 << 16; }

/// Operations that take as long as making bytes of an element.
constexpr double kWorkOfElement = 4;

#if defined(__x86_64__)
#define TBX_VNNI __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512vnni,fma")))

// Shifts and conversions are written with these: what GCC 12's header has for them warns.
typedef uint32_t Words __attribute__((vector_size(64), may_alias));
typedef int32_t Ints __attribute__((vector_size(64), may_alias));
typedef float Lanes __attribute__((vector_size(64), may_alias));

/// A word holds 32 / bits elements of a column; after a shift by s * bits its four bytes hold the elements s,
/// s + 8 / bits, ...: the order of the bytes of a row, here of sixteen.
TBX_VNNI __m128i order_of(int bits) {
  if (bits == 2) return _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  if (bits == 4) return _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  return _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

TBX_VNNI int64_t sum_of(Ints v) {
  int64_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += v[i];
  return sum;
}

/// `n` floats (a multiple of 16) as digits, those of one place `places` apart. `sums`: of the digits of each
/// place. False where that cannot be.
template <int D>
TBX_VNNI bool convert(const float* x, int64_t n, __m128i order, int8_t* to, int64_t places, float& step,
                      int64_t* sums) {
  Ints top = {};
  for (int64_t j = 0; j < n; j += 16) {
    const Ints bits = (Ints)_mm512_loadu_si512(x + j) & 0x7fffffff; // ordered as their floats are
    top = bits > top ? bits : top;
  }
  int32_t most_bits = 0;
  for (int i = 0; i < 16; ++i) most_bits = std::max(most_bits, top[i]);
  float most;
  std::memcpy(&most, &most_bits, sizeof most);
  constexpr int32_t kInfinity = 0x7f800000;
  constexpr float kSmallest = 0x1p-100f;
  if (most_bits >= kInfinity || (most > 0 && most < kSmallest)) return false;
  step = most / greatest(D);
  const Lanes inverse = Lanes{} + (most == 0 ? 0 : greatest(D) / most);
  Ints sum[D] = {};
  for (int64_t j = 0; j < n; j += 16) {
    const Lanes scaled = (Lanes)_mm512_loadu_ps(x + j) * inverse;
    Ints left = (Ints)_mm512_maskz_cvtps_epi32(0xffff, (__m512)scaled); // to the nearest
#pragma GCC unroll 4
    for (int d = D - 1; d >= 0; --d) {
      const Ints digit = d == 0 ? left : (left << 24) >> 24;
      left = (left - digit) >> 8;
      sum[d] += digit;
      const __m128i bytes = _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)digit);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + d * places + j), _mm_shuffle_epi8(bytes, order));
    }
  }
  for (int d = 0; d < D; ++d) sums[d] = sum_of(sum[d]);
  return true;
}

struct Row {
  const int8_t* bytes;
  const float *steps, *totals;
  const int32_t* starts;
};

/// `M` rows of `D` digits times the vectors [first, first + V) of the panel.
template <int kBits, int V, int M, int D>
TBX_VNNI void tile(const QuantizedPanels::View& p, int64_t k, int first, const Row* rows, float* sums) {
  constexpr int kPerWord = 32 / kBits, kSteps = 8 / kBits;
  constexpr int64_t kVector = 64, kPanelBytes = kPanelVectors * kVector, kLanes = 16, kWord = 4;
  // Elements are stored around zero; the product takes them from 0 on.
  const __m512i middle = _mm512_set1_epi8(static_cast<char>(kBits == 8 ? 0x80 : kBits == 4 ? 0x88 : 0xAA));
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << kBits) - 1));
  Lanes total[M][V] = {};
  const std::byte* at = p.data + first * kVector;
  for (int64_t b = 0; b < p.blocks; ++b) {
    const std::byte* scales = at;
    at += kPanelBytes;
    const std::byte* zeros = at;
    if (p.has_zeros) at += kPanelBytes;
    __m512i sum[M][D][V];
#pragma GCC unroll 16
    for (int i = 0; i < M * D; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[i / D][i % D][v] = _mm512_set1_epi32(rows[i / D].starts[b * D + i % D]);
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
        for (int v = 0; v < V; ++v)
          elements[v] = kSteps == 1 ? words[v] : (__m512i)(((Words)words[v] >> (s * kBits)) & (Words)mask);
#pragma GCC unroll 16
        for (int i = 0; i < M * D; ++i) {
          int32_t four;
          std::memcpy(&four, rows[i / D].bytes + i % D * k + b * p.block + w + s * kWord, kWord);
          const __m512i x = _mm512_set1_epi32(four);
#pragma GCC unroll 4
          for (int v = 0; v < V; ++v)
            sum[i / D][i % D][v] = _mm512_dpbusd_epi32(sum[i / D][i % D][v], elements[v], x);
        }
      }
    }
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const float of_block = rows[m].totals[b], step = rows[m].steps[b];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        Lanes f = __builtin_convertvector((Ints)sum[m][0][v], Lanes);
#pragma GCC unroll 4
        for (int d = 1; d < D; ++d) f = f * 256 + __builtin_convertvector((Ints)sum[m][d][v], Lanes);
        if (p.has_zeros) f -= (Lanes)_mm512_loadu_ps(zeros + v * kVector) * of_block;
        total[m][v] += f * ((Lanes)_mm512_loadu_ps(scales + v * kVector) * step);
      }
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < M * V; ++i)
    _mm512_storeu_ps(sums + (i / V * kPanelVectors + first + i % V) * kLanes, (__m512)total[i / V][i % V]);
}

template <int kBits, int V, int M, int D>
void tiles(const QuantizedPanels::View& p, int64_t k, const Row* rows, float* sums) {
  for (int first = 0; first < kPanelVectors; first += V) tile<kBits, V, M, D>(p, k, first, rows, sums);
}

/// As many vectors at a time as leave the sums in registers.
template <int kBits, int D>
void product(const QuantizedPanels::View& p, int64_t k, const Row* rows, int count, float* sums) {
  constexpr bool kOne = D == 1;
  switch (count) {
  case 1: return tiles<kBits, 4, 1, D>(p, k, rows, sums);
  case 2: return tiles < kBits, kOne ? 4 : 2, 2, D > (p, k, rows, sums);
  case 3: return tiles < kBits, kOne ? 2 : 1, 3, D > (p, k, rows, sums);
  case 4: return tiles < kBits, kOne ? 2 : 1, 4, D > (p, k, rows, sums);
  default: break;
  }
  if constexpr (kOne) {
    if (count == kMostTileRows) return tiles<kBits, 2, kMostTileRows, D>(p, k, rows, sums);
    constexpr int kSome = 3;
    constexpr int64_t kSums = int64_t{kSome} * kPanelVectors * 16;
    tiles<kBits, 2, kSome, D>(p, k, rows, sums);
    product<kBits, D>(p, k, rows + kSome, count - kSome, sums + kSums);
  }
}

template <int D>
void product(int bits, const QuantizedPanels::View& p, int64_t k, const Row* rows, int count, float* sums) {
  switch (bits) {
  case 2: return product<2, D>(p, k, rows, count, sums);
  case 4: return product<4, D>(p, k, rows, count, sums);
  default: return product<8, D>(p, k, rows, count, sums);
  }
}
#undef TBX_VNNI
#endif

} // namespace

int64_t ByteRows::bytes(int64_t rows, int64_t k, int64_t block, Digits digits) {
  const int64_t blocks = rows * (k / block), count = static_cast<int64_t>(digits);
  return round_up(
      blocks * static_cast<int64_t>(2 * sizeof(float) + count * sizeof(int32_t)) + rows * count * k, 64);
}

ByteRows::ByteRows([[maybe_unused]] const float* x, int64_t rows, int64_t k, [[maybe_unused]] int64_t stride,
                   [[maybe_unused]] int64_t block, int bits, Digits digits, void* memory)
    : k_(k), blocks_(k / block), bits_(bits), digits_(static_cast<int>(digits)),
      steps_(static_cast<float*>(memory)), totals_(steps_ + rows * blocks_),
      starts_(reinterpret_cast<int32_t*>(totals_ + rows * blocks_)),
      bytes_(reinterpret_cast<int8_t*>(starts_ + rows * blocks_ * digits_)) {
#if defined(__x86_64__)
  const __m128i order = order_of(bits);
  const int64_t middle = int64_t{1} << (bits - 1);
  auto make_row = [&](int64_t row) {
    for (int64_t b = 0; b < blocks_; ++b) {
      const int64_t i = row * blocks_ + b, first = b * block;
      const float* from = x + row * stride + first;
      int8_t* to = bytes_ + row * digits_ * k + first;
      int64_t sums[3];
      if (!(digits_ == 1 ? convert<1>(from, block, order, to, k, steps_[i], sums)
                         : convert<3>(from, block, order, to, k, steps_[i], sums)))
        return false;
      totals_[i] = 0;
      for (int d = 0; d < digits_; ++d) {
        totals_[i] = totals_[i] * 256 + static_cast<float>(sums[d]);
        starts_[i * digits_ + d] = static_cast<int32_t>(-middle * sums[d]);
      }
    }
    return true;
  };
  std::atomic<bool> made = true;
  direct::in_pieces(rows, kWorkOfElement * static_cast<double>(rows * k), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end && made.load(std::memory_order_relaxed); ++row)
      if (!make_row(row)) made.store(false, std::memory_order_relaxed);
  });
  made_ = made.load();
#endif
}

bool ByteRows::usable([[maybe_unused]] int64_t block, [[maybe_unused]] int bits) {
#if defined(__x86_64__)
  // Panels are as wide as the kernel takes them where these instructions are.
  static const bool has = host_isa() == Isa::avx512 && __builtin_cpu_supports("avx512vnni");
  return has && block <= INT32_MAX / 128 >> bits;
#else
  return false;
#endif
}

void ByteRows::multiply([[maybe_unused]] const QuantizedPanels& m, [[maybe_unused]] int64_t panel,
                        [[maybe_unused]] int64_t first, [[maybe_unused]] int rows,
                        [[maybe_unused]] float* sums) const {
#if defined(__x86_64__)
  Row row[kMostTileRows];
  for (int i = 0; i < rows; ++i) {
    const int64_t at = (first + i) * blocks_;
    row[i] = {bytes_ + (first + i) * digits_ * k_, steps_ + at, totals_ + at, starts_ + at * digits_};
  }
  if (digits_ == 1)
    product<1>(bits_, m.view(panel), k_, row, rows, sums);
  else
    product<3>(bits_, m.view(panel), k_, row, rows, sums);
#endif
}

void round_to_bytes(float* x, int64_t n, int64_t block) {
  for (int64_t first = 0; first < n; first += block) {
    const int64_t end = std::min(n, first + block);
    float most = 0;
    for (int64_t j = first; j < end; ++j) most = std::max(most, std::fabs(x[j]));
    const float inverse = most == 0 ? 0 : 127 / most, step = most / 127;
    for (int64_t j = first; j < end; ++j) x[j] = std::nearbyint(x[j] * inverse) * step;
  }
}

} // namespace tbx::extern_kernels::gemv
