// Convolutions of many small groups: a vector of results holds several groups, each lane takes the channels
// of its own group from one vector of the input.
#pragma once

#include <cstdint>
#include <vector>

namespace tbx::extern_kernels::direct {

/// How the channels of groups are put into vectors. Lanes behind the last group of a vector are not used.
struct GroupVectors {
  int lanes = 0;                                           ///< 0: groups do not fit in
  int64_t groups = 0, depth = 0, columns = 0, in_each = 0; ///< groups in each vector
  int64_t count() const { return (groups + in_each - 1) / in_each; }
  /// The first result of vector `v`, and how many of its lanes are results.
  int64_t first(int64_t v) const { return v * in_each * columns; }
  int64_t used(int64_t v) const;
  /// The first channel of the input that vector `v` is loaded from; all its lanes are channels of a pixel.
  int64_t base(int64_t v) const;
  /// Where lane `j` of vector `v` finds channel `l` of its group, counted from `base`.
  int64_t place(int64_t v, int64_t l, int64_t j) const;
};

/// Of the widest vectors of this CPU (host_isa).
int64_t vector_bytes();

/// Elements of `size` bytes; the widest vectors of this CPU that pixels fill.
GroupVectors group_vectors(int64_t groups, int64_t depth, int64_t columns, int64_t size);

template <class T> struct GroupRun {
  const GroupVectors& vectors;
  int64_t taps;
  const T* weights;      ///< [vector, tap, depth, lane]
  const int64_t* places; ///< [vector, depth, lane]
  const T* start;        ///< what is added to, by results; may be read up to a vector behind them
};

/// results[r][m] = start[m] + sum over taps t and channels of rows[t * kRows + r] * weights, for `count` rows
/// (kRows at most).
template <class T>
void multiply_groups(const GroupRun<T>& run, const T* const* rows, int count, T* const* results);

} // namespace tbx::extern_kernels::direct
