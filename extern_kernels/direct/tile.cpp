#include "extern_kernels/direct/tile.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/isa.h"

namespace tbx::extern_kernels::direct {
namespace {

template <class T, int Bytes> struct Vector {
  typedef T Lanes __attribute__((vector_size(Bytes)));
  static constexpr int count = Bytes / sizeof(T);
};

template <class V, class T> [[gnu::always_inline]] inline void load(V& v, const T* from) {
  std::memcpy(&v, from, sizeof v);
}
template <class V, class T> [[gnu::always_inline]] inline void store(const V& v, T* to) {
  std::memcpy(to, &v, sizeof v);
}

/// `Count` rows times `Vectors` vectors of columns. The sums stay in registers.
template <class T, int Bytes, int Count, int Vectors>
[[gnu::always_inline]] inline void tile(const T* const* rows, int64_t taps, int64_t offset, int64_t depth,
                                        const T* panel, int64_t step, T* sums) {
  using V = Vector<T, Bytes>;
  typename V::Lanes sum[Count][Vectors] = {};
  for (int64_t t = 0; t < taps; ++t, rows += kRows) {
    const T* row[Count];
#pragma GCC unroll 8
    for (int r = 0; r < Count; ++r) row[r] = rows[r] + offset;
    for (int64_t l = 0; l < depth; ++l, panel += step) {
      typename V::Lanes column[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) load(column[v], panel + v * V::count);
#pragma GCC unroll 8
      for (int r = 0; r < Count; ++r) {
        const T x = row[r][l];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) sum[r][v] += column[v] * x;
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Count; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(sum[r][v], sums + r * kPanel<T> + v * V::count);
}

template <class T, int Bytes, int Count>
[[gnu::always_inline]] inline void columns(const T* const* rows, int64_t taps, int64_t offset, int64_t depth,
                                           const T* panel, int64_t step, int width, T* sums) {
  constexpr int kLanes = Vector<T, Bytes>::count;
  int j = 0;
  for (; j + kLanes < width; j += 2 * kLanes)
    tile<T, Bytes, Count, 2>(rows, taps, offset, depth, panel + j, step, sums + j);
  if (j < width) tile<T, Bytes, Count, 1>(rows, taps, offset, depth, panel + j, step, sums + j);
}

/// `Most`: rows whose sums leave registers for the operands.
template <class T, int Bytes, int Most>
[[gnu::always_inline]] inline void multiply_body(const T* const* rows, int count, int64_t taps,
                                                 int64_t offset, int64_t depth, const T* panel, int64_t step,
                                                 int width, T* sums) {
  int r = 0;
  for (; r + Most <= count; r += Most)
    columns<T, Bytes, Most>(rows + r, taps, offset, depth, panel, step, width, sums + r * kPanel<T>);
  if constexpr (Most > 4)
    for (; r + 4 <= count; r += 4)
      columns<T, Bytes, 4>(rows + r, taps, offset, depth, panel, step, width, sums + r * kPanel<T>);
  for (; r + 2 <= count; r += 2)
    columns<T, Bytes, 2>(rows + r, taps, offset, depth, panel, step, width, sums + r * kPanel<T>);
  if (r < count)
    columns<T, Bytes, 1>(rows + r, taps, offset, depth, panel, step, width, sums + r * kPanel<T>);
}

// One body for all instruction sets: what it becomes is decided by the target of the function around it.
// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_TILES(name, target, bytes, rows_at_once)                                                         \
  template <class T>                                                                                         \
  target void multiply_##name(const T* const* rows, int count, int64_t taps, int64_t offset, int64_t depth,  \
                              const T* panel, int64_t step, int width, T* sums) {                            \
    multiply_body<T, bytes, rows_at_once>(rows, count, taps, offset, depth, panel, step, width, sums);       \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_TILES(plain, , 16, 4)
#if defined(__x86_64__)
TBX_TILES(avx2, __attribute__((target("avx2,fma"))), 32, 4)
TBX_TILES(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), 64, 8)
#endif
#undef TBX_TILES

} // namespace

template <class T> const Tiles<T>& tiles() {
  static const Tiles<T> best = []() -> Tiles<T> {
#if defined(__x86_64__)
    if (host_isa() == Isa::avx512) return {multiply_avx512<T>};
    if (host_isa() >= Isa::avx2) return {multiply_avx2<T>};
#endif
    return {multiply_plain<T>};
  }();
  return best;
}

template <class T, class R>
void multiply_tile(const T* const* rows, int count, int64_t taps, int64_t offset, int64_t depth,
                   const T* panel, int64_t step, int width, R* sums) {
  if constexpr (std::is_same_v<T, R>) {
    tiles<T>().multiply(rows, count, taps, offset, depth, panel, step, width, sums);
  } else {
    constexpr int64_t kExact =
        (int64_t{1} << 24) / (int64_t{255} * 255); // products that float32 adds exactly
    const int64_t taps_at_once = std::max<int64_t>(1, kExact / std::max<int64_t>(1, depth));
    alignas(64) T part[kRows * kPanel<T>];
    if (taps <= taps_at_once && depth <= kExact) {
      tiles<T>().multiply(rows, count, taps, offset, depth, panel, step, width, part);
      for (int r = 0; r < count; ++r)
        for (int j = 0; j < width; ++j)
          sums[r * kPanel<T> + j] = static_cast<R>(static_cast<int32_t>(part[r * kPanel<T> + j]));
      return;
    }
    std::fill_n(sums, count * kPanel<T>, R(0));
    for (int64_t t = 0; t < taps; t += taps_at_once)
      for (int64_t l = 0; l < depth; l += kExact) {
        tiles<T>().multiply(rows + t * kRows, count, std::min(taps_at_once, taps - t), offset + l,
                            std::min(kExact, depth - l), panel + (t * depth + l) * step, step, width, part);
        for (int r = 0; r < count; ++r)
          for (int j = 0; j < width; ++j)
            sums[r * kPanel<T> + j] += static_cast<R>(static_cast<int32_t>(part[r * kPanel<T> + j]));
      }
  }
}

template void multiply_tile(const float* const*, int, int64_t, int64_t, int64_t, const float*, int64_t, int,
                            float*);
template void multiply_tile(const float* const*, int, int64_t, int64_t, int64_t, const float*, int64_t, int,
                            uint32_t*);
template void multiply_tile(const double* const*, int, int64_t, int64_t, int64_t, const double*, int64_t, int,
                            double*);
template void multiply_tile(const uint32_t* const*, int, int64_t, int64_t, int64_t, const uint32_t*, int64_t,
                            int, uint32_t*);
template void multiply_tile(const uint64_t* const*, int, int64_t, int64_t, int64_t, const uint64_t*, int64_t,
                            int, uint64_t*);
template const Tiles<float>& tiles();
template const Tiles<double>& tiles();
template const Tiles<uint32_t>& tiles();
template const Tiles<uint64_t>& tiles();

} // namespace tbx::extern_kernels::direct
