// The results of one part of a convolution: pointers to the pixels that every tap takes, and the products.
#pragma once

#include <tbb/task_arena.h>

#include <algorithm>
#include <numeric>

#include "extern_kernels/direct/geometry.h"
#include "extern_kernels/direct/groups.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/direct/tile.h"

namespace tbx::extern_kernels::direct {

inline int64_t volume(std::span<const int64_t> s) {
  return std::accumulate(s.begin(), s.end(), int64_t{1}, std::multiplies<>());
}

/// Numbers of one convolution.
struct Shape {
  int64_t images, groups, depth, columns; ///< depth, columns: channels of a group that go in and come out
  GroupVectors vectors;                   ///< of small groups
  bool by_taps = false;                   ///< tap_products.h
  bool by_lines = false;                  ///< lines.h
  bool has_small_groups() const { return vectors.lanes > 0; }
  int64_t in_channels() const { return groups * depth; }
  int64_t out_channels() const { return groups * columns; }
};

/// The input with channels side by side (by taps: or as planes, whose pixels lie side by side), in the type
/// of the sums and without its zero point.
template <class T> struct Image {
  const T* data;
  std::vector<int64_t> strides; ///< of images and the spatial dimensions
  std::span<const int64_t> sizes;
  const T* zeros; ///< a pixel of padding
  /// Of a copy, by spatial dimension but the last: where a place is in it. Along the last one it has only
  /// what the geometry takes. None: everything is where it is.
  std::vector<std::vector<int64_t>> index = {};
  int64_t channel_step = 1;
};

/// T: what products are computed in, R: what results are.
template <class T, class R> class PartRun {
public:
  PartRun(const Geometry& geometry, const Part& part, const Shape& s, const Image<T>& x, const T* weights,
          const int64_t* places, const R* bias, const TensorRef& y)
      : geometry_(geometry), part_(part), s_(s), x_(x), weights_(weights), places_(places), bias_(bias),
        y_(y), rank_(geometry.in_step.size()) {
    part.grid(y.sizes.subspan(2), geometry.out_step, first_, count_);
    const size_t last = rank_ - 1;
    for (int64_t t = 0; t < part.taps; ++t) {
      const int64_t offset = part.offsets[t * rank_ + last];
      low_ = t == 0 ? offset : std::min(low_, offset);
      high_ = t == 0 ? offset : std::max(high_, offset);
    }
  }

  void run() const {
    const int64_t points = volume(count_);
    if (points == 0) return; // all results of this part lie outside
    const int64_t blocks = (points + kBlock - 1) / kBlock;
    const int64_t panels = s_.has_small_groups() ? 1 : s_.groups * panels_of_group();
    // Few points: threads share the columns.
    int64_t cuts = 1;
    const int64_t wanted = int64_t{2} * tbb::this_task_arena::max_concurrency();
    if (s_.images * blocks < wanted)
      cuts = std::min(panels, (wanted + s_.images * blocks - 1) / (s_.images * blocks));
    const double work = 2.0 * static_cast<double>(s_.images * points) * part_.taps * s_.depth * part_.phases *
                        s_.out_channels();
    in_pieces(s_.images * blocks * cuts, work, [&](int64_t begin, int64_t end) {
      Scratch scratch(*this);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t cut = i % cuts, block = i / cuts % blocks, image = i / cuts / blocks;
        const int64_t from = block * kBlock, to = std::min(points, from + kBlock);
        find_rows(scratch, image, from, to);
        if (s_.has_small_groups())
          groups(scratch, image, to - from);
        else
          products(scratch, image, to - from, panels * cut / cuts, panels * (cut + 1) / cuts);
      }
    });
  }

private:
  static constexpr int64_t kBlock =
      int64_t{8} * kRows; ///< points that are done with one panel after the other

  struct Scratch {
    explicit Scratch(const PartRun& run)
        : rows(static_cast<size_t>(kBlock * run.part_.taps)), points(static_cast<size_t>(kBlock * run.rank_)),
          at(static_cast<size_t>(run.part_.taps)), steps(at.size()),
          sums(static_cast<size_t>(kRows * std::max<int64_t>(kPanel<T>, run.s_.out_channels()))) {}
    std::vector<const T*> rows;  ///< [tile of kRows points, tap, point]
    std::vector<int64_t> points; ///< [point, rank]
    std::vector<R*> results;     ///< [point, phase]
    std::vector<const T*> at;    ///< of one point
    std::vector<int64_t> steps;  ///< from there to the next point
    std::vector<R> sums;
  };

  int64_t panels_of_group() const { return (part_.phases * s_.columns + kPanel<T> - 1) / kPanel<T>; }

  void place(int64_t point, int64_t* q) const {
    for (size_t d = rank_; d-- > 0; point /= count_[d]) q[d] = first_[d] + point % count_[d];
  }

  /// The pixel that a tap takes for grid point `q`.
  const T* pixel(int64_t image, const int64_t* q, int64_t tap) const {
    const T* at = x_.data + image * x_.strides[0];
    for (size_t d = 0; d < rank_; ++d) {
      const int64_t i = q[d] * geometry_.in_step[d] + part_.offsets[tap * rank_ + d];
      if (i < 0 || i >= x_.sizes[d + 2]) return x_.zeros;
      at += (x_.index.empty() || d + 1 == rank_ ? i : x_.index[d][i]) * x_.strides[d + 1];
    }
    return at;
  }

  /// No tap of this point leaves the image along the last dimension.
  bool is_inside(int64_t q) const {
    q *= geometry_.in_step[rank_ - 1];
    return q + low_ >= 0 && q + high_ < x_.sizes[rank_ + 1];
  }

  /// The places of points `from` to `to` and their pixels. Along a line all pixels move on by one step.
  void find_rows(Scratch& scratch, int64_t image, int64_t from, int64_t to) const {
    const size_t last = rank_ - 1;
    const int64_t step = geometry_.in_step[last] * x_.strides[rank_];
    bool was_inside = false;
    for (int64_t point = from; point < to; ++point) {
      int64_t* q = scratch.points.data() + (point - from) * rank_;
      if (point > from && q[-1] + 1 < first_[last] + count_[last]) {
        std::copy_n(q - rank_, rank_, q);
        ++q[last];
      } else {
        place(point, q);
      }
      const bool inside = is_inside(q[last]);
      if (inside && was_inside && q[last] > first_[last]) {
        for (int64_t t = 0; t < part_.taps; ++t) scratch.at[t] += scratch.steps[t];
      } else {
        for (int64_t t = 0; t < part_.taps; ++t) {
          scratch.at[t] = pixel(image, q, t);
          scratch.steps[t] = scratch.at[t] == x_.zeros ? 0 : step;
        }
      }
      was_inside = inside;
      const int64_t tile = (point - from) / kRows, row = (point - from) % kRows;
      const T** rows = scratch.rows.data() + tile * part_.taps * kRows + row;
      for (int64_t t = 0; t < part_.taps; ++t) rows[t * kRows] = scratch.at[t];
    }
  }

  /// Where the results of a grid point for a phase begin; nullptr: outside.
  R* result(int64_t image, const int64_t* q, int64_t phase) const {
    R* at = static_cast<R*>(y_.data) + image * y_.strides[0];
    for (size_t d = 0; d < rank_; ++d) {
      const int64_t o = q[d] * geometry_.out_step[d] + part_.shifts[phase * rank_ + d];
      if (o < 0 || o >= y_.sizes[d + 2]) return nullptr;
      at += o * y_.strides[d + 2];
    }
    return at;
  }

  void groups(Scratch& scratch, int64_t image, int64_t points) const {
    if constexpr (std::is_same_v<T, R>) {
      const GroupRun<T> run{s_.vectors, part_.taps, weights_, places_, bias_};
      const int64_t step = y_.strides[1], channels = s_.out_channels();
      for (int64_t first = 0; first < points; first += kRows) {
        const int rows = static_cast<int>(std::min<int64_t>(kRows, points - first));
        T *to[kRows], *y[kRows];
        for (int r = 0; r < rows; ++r) {
          y[r] = result(image, scratch.points.data() + (first + r) * rank_, 0);
          to[r] = step == 1 || !y[r] ? y[r] : scratch.sums.data() + r * channels;
        }
        multiply_groups(run, scratch.rows.data() + first * part_.taps, rows, to);
        for (int r = 0; step != 1 && r < rows; ++r)
          for (int64_t c = 0; y[r] && c < channels; ++c) y[r][c * step] = to[r][c];
      }
    }
  }

  void products(Scratch& scratch, int64_t image, int64_t points, int64_t begin, int64_t end) const {
    const int64_t size = part_.taps * s_.depth * kPanel<T>, all = part_.phases * s_.columns;
    scratch.results.resize(static_cast<size_t>(points * part_.phases));
    for (int64_t p = 0; p < points; ++p)
      for (int64_t phase = 0; phase < part_.phases; ++phase)
        scratch.results[p * part_.phases + phase] = result(image, scratch.points.data() + p * rank_, phase);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = i / panels_of_group(), column = i % panels_of_group() * kPanel<T>;
      const int width = static_cast<int>(std::min<int64_t>(kPanel<T>, all - column));
      for (int64_t first = 0; first < points; first += kRows) {
        const int rows = static_cast<int>(std::min<int64_t>(kRows, points - first));
        multiply_tile(scratch.rows.data() + first * part_.taps, rows, part_.taps, group * s_.depth, s_.depth,
                      weights_ + i * size, kPanel<T>, width, scratch.sums.data());
        for (int r = 0; r < rows; ++r)
          write(scratch.results.data() + (first + r) * part_.phases, group, column, width,
                scratch.sums.data() + r * kPanel<T>);
      }
    }
  }

  void write(R* const* results, int64_t group, int64_t column, int width, const R* sums) const {
    const int64_t step = y_.strides[1];
    for (int j = 0; j < width;) {
      const int64_t phase = (column + j) / s_.columns, m = (column + j) % s_.columns;
      const int run = static_cast<int>(std::min<int64_t>(width - j, s_.columns - m));
      if (R* y = results[phase]) {
        const R* bias = bias_ + group * s_.columns + m;
        y += (group * s_.columns + m) * step;
        if (step == 1)
          for (int k = 0; k < run; ++k) y[k] = sums[j + k] + bias[k];
        else
          for (int k = 0; k < run; ++k) y[k * step] = sums[j + k] + bias[k];
      }
      j += run;
    }
  }

  const Geometry& geometry_;
  const Part& part_;
  const Shape& s_;
  const Image<T>& x_;
  const T* weights_;
  const int64_t* places_;
  const R* bias_;
  const TensorRef& y_;
  size_t rank_;
  std::vector<int64_t> first_, count_;
  int64_t low_ = 0, high_ = 0; ///< offsets along the last dimension
};

} // namespace tbx::extern_kernels::direct
