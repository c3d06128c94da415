#include "extern_kernels/direct/groups.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/isa.h"
#include "extern_kernels/direct/tile.h"

namespace tbx::extern_kernels::direct {

int64_t vector_bytes() { return tbx::vector_bytes(host_isa()); }

int64_t GroupVectors::used(int64_t v) const { return std::min(in_each, groups - v * in_each) * columns; }

int64_t GroupVectors::base(int64_t v) const { return std::min(v * in_each * depth, groups * depth - lanes); }

int64_t GroupVectors::place(int64_t v, int64_t l, int64_t j) const {
  return j < used(v) ? (v * in_each + j / columns) * depth + l - base(v) : 0;
}

namespace {

template <class T, int Bytes> struct Vector {
  using Index = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
  typedef T Lanes __attribute__((vector_size(Bytes)));
  typedef Index Places __attribute__((vector_size(Bytes)));
  static constexpr int count = Bytes / sizeof(T);
};

template <class V, class P> [[gnu::always_inline]] inline void shuffle(V& v, const P& places) {
#if defined(__clang__)
  const V from = v;
  for (size_t j = 0; j < sizeof(V) / sizeof(v[0]); ++j) v[j] = from[places[j]];
#else
  v = __builtin_shuffle(v, places);
#endif
}

/// One vector of results of `Count` rows. Depth: channels of a group, 0: any number; `InPlace`: lanes are
/// where they belong already.
template <class T, int Bytes, int Count, bool InPlace>
[[gnu::always_inline]] inline void vector(const GroupRun<T>& run, int64_t v, const T* const* rows,
                                          T* const* results) {
  using V = Vector<T, Bytes>;
  constexpr int64_t kLanes = V::count;
  const int64_t depth = run.vectors.depth, base = run.vectors.base(v), first = run.vectors.first(v);
  const T* weights = run.weights + v * run.taps * depth * kLanes;
  typename V::Lanes sum[Count];
#pragma GCC unroll 8
  for (int r = 0; r < Count; ++r) std::memcpy(&sum[r], run.start + first, Bytes);
  auto add = [&](int64_t l, const typename V::Places& places, const T* const* row, const T* w)
      __attribute__((always_inline)) {
    typename V::Lanes weight;
    std::memcpy(&weight, w + l * kLanes, Bytes);
#pragma GCC unroll 8
    for (int r = 0; r < Count; ++r) {
      typename V::Lanes x;
      std::memcpy(&x, row[r] + base, Bytes);
      if constexpr (!InPlace) shuffle(x, places);
      sum[r] += x * weight;
    }
  };
  auto places_of = [&](int64_t l, typename V::Places & places) __attribute__((always_inline)) {
    const int64_t* from = run.places + (v * depth + l) * kLanes;
    for (int64_t j = 0; j < kLanes; ++j) places[j] = static_cast<typename V::Index>(from[j]);
  };
  if (depth == 1) {
    typename V::Places places = {};
    if constexpr (!InPlace) places_of(0, places);
    for (int64_t t = 0; t < run.taps; ++t, rows += kRows, weights += kLanes) add(0, places, rows, weights);
  } else {
    // Channel by channel: the places stay in a register, the rows of a block in the nearest cache.
    for (int64_t l = 0; l < depth; ++l) {
      typename V::Places places;
      places_of(l, places);
      const T* w = weights;
      const T* const* row = rows;
      for (int64_t t = 0; t < run.taps; ++t, row += kRows, w += depth * kLanes) add(l, places, row, w);
    }
  }
  const int64_t used = run.vectors.used(v);
  // The lanes behind a vector's own are those of the next one, which is stored later.
  const bool whole = first + kLanes <= run.vectors.groups * run.vectors.columns;
#pragma GCC unroll 8
  for (int r = 0; r < Count; ++r) {
    if (!results[r]) continue;
    if (whole)
      std::memcpy(results[r] + first, &sum[r], Bytes);
    else
      std::memcpy(results[r] + first, &sum[r], static_cast<size_t>(used) * sizeof(T));
  }
}

template <class T, int Bytes, int Count>
[[gnu::always_inline]] inline void vectors(const GroupRun<T>& run, const T* const* rows, T* const* results) {
  const bool single = run.vectors.depth == 1 && run.vectors.columns == 1;
  for (int64_t v = 0; v < run.vectors.count(); ++v)
    if (single && run.vectors.base(v) == run.vectors.first(v))
      vector<T, Bytes, Count, true>(run, v, rows, results);
    else
      vector<T, Bytes, Count, false>(run, v, rows, results);
}

template <class T, int Bytes, int Most>
[[gnu::always_inline]] inline void body(const GroupRun<T>& run, const T* const* rows, int count,
                                        T* const* results) {
  int r = 0;
  for (; r + Most <= count; r += Most) vectors<T, Bytes, Most>(run, rows + r, results + r);
  for (; r < count; ++r) vectors<T, Bytes, 1>(run, rows + r, results + r);
}

// NOLINTBEGIN(bugprone-macro-parentheses): attributes and names take none
#define TBX_GROUPS(name, target, bytes, rows_at_once)                                                        \
  template <class T>                                                                                         \
  target void groups_##name(const GroupRun<T>& run, const T* const* rows, int count, T* const* results) {    \
    body<T, bytes, rows_at_once>(run, rows, count, results);                                                 \
  }
// NOLINTEND(bugprone-macro-parentheses)

TBX_GROUPS(plain16, , 16, 4)
#if defined(__x86_64__)
TBX_GROUPS(avx16, __attribute__((target("avx2,fma"))), 16, 4)
TBX_GROUPS(avx32, __attribute__((target("avx2,fma"))), 32, 4)
TBX_GROUPS(avx64, __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))), 64, 8)
#endif
#undef TBX_GROUPS

} // namespace

GroupVectors group_vectors(int64_t groups, int64_t depth, int64_t columns, int64_t size) {
  GroupVectors g{0, groups, depth, columns, 0};
  if (groups < 2 || depth < 1 || columns < 1) return g;
  for (int64_t bytes = vector_bytes(); bytes >= 16; bytes /= 2) {
    const int64_t lanes = bytes / size;
    g.in_each = std::min(lanes / columns, lanes / depth);
    if (groups * depth < lanes) continue;
    if (g.in_each >= 2) g.lanes = static_cast<int>(lanes);
    break;
  }
  return g;
}

template <class T>
void multiply_groups(const GroupRun<T>& run, const T* const* rows, int count, T* const* results) {
  const int64_t bytes = run.vectors.lanes * static_cast<int64_t>(sizeof(T));
#if defined(__x86_64__)
  static const int64_t widest = vector_bytes();
  if (bytes == 64) return groups_avx64<T>(run, rows, count, results);
  if (bytes == 32) return groups_avx32<T>(run, rows, count, results);
  if (widest > 16) return groups_avx16<T>(run, rows, count, results);
#endif
  groups_plain16<T>(run, rows, count, results);
}

template void multiply_groups(const GroupRun<float>&, const float* const*, int, float* const*);
template void multiply_groups(const GroupRun<double>&, const double* const*, int, double* const*);
template void multiply_groups(const GroupRun<uint32_t>&, const uint32_t* const*, int, uint32_t* const*);
template void multiply_groups(const GroupRun<uint64_t>&, const uint64_t* const*, int, uint64_t* const*);

} // namespace tbx::extern_kernels::direct
