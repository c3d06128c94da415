#include "extern_kernels/direct/lines.h"

#include <algorithm>
#include <cstring>

namespace tbx::extern_kernels::direct {
namespace {

/// Lines are read and written in whole steps of this many elements, behind their end as well.
template <class T> constexpr int64_t kStep = 64 / sizeof(T);
template <class T> int64_t padded(int64_t width) { return (width + kStep<T> - 1) / kStep<T> * kStep<T>; }

/// Elements [at, at + Vectors * lanes) of `Columns` lines of sums.
template <class T, int Bytes, int Vectors, int Columns>
[[gnu::always_inline]] inline void block(const T* const* from, int64_t taps, const T* weights,
                                         int64_t columns, int64_t at, T* to, int64_t line) {
  typedef T Lanes __attribute__((vector_size(Bytes)));
  constexpr int64_t kLanes = Bytes / sizeof(T);
  Lanes sum[Columns][Vectors];
#pragma GCC unroll 4
  for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) std::memcpy(&sum[c][v], to + c * line + at + v * kLanes, Bytes);
  for (int64_t t = 0; t < taps; ++t, weights += columns) {
    Lanes x[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) std::memcpy(&x[v], from[t] + at + v * kLanes, Bytes);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[c][v] += x[v] * weights[c];
  }
#pragma GCC unroll 4
  for (int c = 0; c < Columns; ++c)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) std::memcpy(to + c * line + at + v * kLanes, &sum[c][v], Bytes);
}

template <class T, int Bytes, int Columns>
[[gnu::always_inline]] inline void along(const T* const* from, int64_t taps, const T* weights,
                                         int64_t columns, int64_t width, T* to, int64_t line) {
  constexpr int64_t kLanes = Bytes / sizeof(T);
  constexpr int kVectors = 4 / Columns > 1 ? 4 / Columns : 2;
  int64_t i = 0;
  for (; i + kVectors * kLanes <= width; i += kVectors * kLanes)
    block<T, Bytes, kVectors, Columns>(from, taps, weights, columns, i, to, line);
  for (; i < width; i += kLanes) block<T, Bytes, 1, Columns>(from, taps, weights, columns, i, to, line);
}

template <class T, int Bytes>
[[gnu::always_inline]] inline void body(const T* const* from, int64_t taps, const T* weights, int64_t columns,
                                        int64_t width, T* to, int64_t line) {
  int64_t c = 0;
  for (; c + 4 <= columns; c += 4)
    along<T, Bytes, 4>(from, taps, weights + c, columns, width, to + c * line, line);
  if (c + 2 <= columns) {
    along<T, Bytes, 2>(from, taps, weights + c, columns, width, to + c * line, line);
    c += 2;
  }
  if (c < columns) along<T, Bytes, 1>(from, taps, weights + c, columns, width, to + c * line, line);
}

/// to[c * line + i] += the sum over taps t of from[t][i] * weights[t * columns + c].
template <class T>
void lines_plain(const T* const* from, int64_t taps, const T* weights, int64_t columns, int64_t width, T* to,
                 int64_t line) {
  body<T, 16>(from, taps, weights, columns, width, to, line);
}
#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2,fma"))) void lines_avx2(const T* const* from, int64_t taps, const T* weights,
                                                    int64_t columns, int64_t width, T* to, int64_t line) {
  body<T, 32>(from, taps, weights, columns, width, to, line);
}
template <class T>
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma"))) void
lines_avx512(const T* const* from, int64_t taps, const T* weights, int64_t columns, int64_t width, T* to,
             int64_t line) {
  body<T, 64>(from, taps, weights, columns, width, to, line);
}
#endif

template <class T>
using AddTaps = void (*)(const T* const*, int64_t, const T*, int64_t, int64_t, T*, int64_t);

template <class T> AddTaps<T> add_taps() {
#if defined(__x86_64__)
  if (vector_bytes() == 64) return lines_avx512<T>;
  if (vector_bytes() == 32) return lines_avx2<T>;
#endif
  return lines_plain<T>;
}

/// T: of sums, S: of the input in memory.
template <class T, class S> class LineRun {
public:
  explicit LineRun(const LineWork<T>& work)
      : w_(work), rank_(work.geometry.in_step.size()), last_(rank_ - 1) {
    w_.part.grid(w_.y.sizes.subspan(2), w_.geometry.out_step, first_, count_);
    for (int64_t t = 0; t < w_.part.taps; ++t) {
      const int64_t* offset = w_.part.offsets.data() + t * rank_;
      if (t == 0 || !std::equal(offset, offset + last_, offset - rank_)) rows_.push_back({t, t});
      rows_.back().end = t + 1;
    }
    find_pixels();
  }

  void run() const {
    const int64_t lines = volume(std::span(count_).first(last_));
    if (lines == 0 || count_[last_] == 0) return; // all results of this part lie outside
    const Shape& s = w_.s;
    const double work = 2.0 * static_cast<double>(s.images * lines * count_[last_]) *
                        (w_.part.taps * s.depth + 1) * s.out_channels();
    in_pieces(s.images * s.groups * lines, work, [&](int64_t begin, int64_t end) {
      Scratch scratch(*this);
      int64_t line = begin % lines, group = begin / lines % s.groups, image = begin / lines / s.groups;
      for (int64_t d = static_cast<int64_t>(last_), rest = line; d-- > 0; rest /= count_[d])
        scratch.q[d] = first_[d] + rest % count_[d];
      for (int64_t i = begin; i < end; ++i) {
        add(scratch, image, group);
        write(scratch, image, group);
        for (size_t d = last_; d-- > 0; scratch.q[d] = first_[d])
          if (++scratch.q[d] < first_[d] + count_[d]) break;
        if (++line < lines) continue;
        line = 0;
        if (++group < s.groups) continue;
        group = 0;
        ++image;
      }
    });
  }

private:
  struct Row { ///< taps that take the same line of the input
    int64_t begin, end;
  };
  /// Pixels of a line whose places leave the same remainder by the step: elements `begin` to `end` of a copy
  /// that has zeros around them.
  struct Pixels {
    int64_t remainder, from, begin, end;
  };
  struct Scratch {
    explicit Scratch(const LineRun& run)
        : q(run.rank_),
          lines(static_cast<size_t>(run.taken_width_ * static_cast<int64_t>(run.pixels_.size()))),
          sums(static_cast<size_t>(run.sums_width_ * run.w_.s.columns)) {
      for (int64_t place : run.taps_) from.push_back(lines.data() + place);
    }
    std::vector<int64_t> q;     ///< the grid point that the line begins with
    std::vector<T> lines;       ///< of the input, one for each remainder
    std::vector<const T*> from; ///< by tap, in `lines`
    std::vector<T> sums;        ///< [result, point]
  };

  /// What of a line goes where. Element j of a copy is for grid point first + low + j.
  void find_pixels() {
    const int64_t step = w_.geometry.in_step[last_], width = w_.x.sizes[rank_ + 1],
                  stride = w_.x.strides[rank_ + 1];
    std::vector<size_t> copy(static_cast<size_t>(w_.part.taps));
    std::vector<int64_t> whole(copy.size());
    int64_t low = 0, high = 0;
    for (size_t t = 0; t < copy.size(); ++t) {
      const int64_t offset = w_.part.offsets[t * rank_ + last_];
      whole[t] = floor_div(offset, step);
      low = t == 0 ? whole[t] : std::min(low, whole[t]);
      high = t == 0 ? whole[t] : std::max(high, whole[t]);
      const int64_t remainder = offset - whole[t] * step;
      copy[t] = std::find_if(pixels_.begin(), pixels_.end(),
                             [&](const Pixels& p) { return p.remainder == remainder; }) -
                pixels_.begin();
      if (copy[t] == pixels_.size()) pixels_.push_back({remainder, 0, 0, 0});
    }
    sums_width_ = padded<T>(count_[last_]);
    taken_width_ = sums_width_ + high - low;
    const int64_t from = first_[last_] + low;
    for (Pixels& p : pixels_) {
      const int64_t there = floor_div(width - p.remainder + step - 1, step); // pixels of this remainder
      p.begin = std::clamp<int64_t>(-from, 0, taken_width_);
      p.end = std::clamp(there - from, p.begin, taken_width_);
      p.from = ((from + p.begin) * step + p.remainder) * stride;
    }
    for (size_t t = 0; t < copy.size(); ++t)
      taps_.push_back(static_cast<int64_t>(copy[t]) * taken_width_ + whole[t] - low);
  }

  void take(const S* line, T* to) const {
    const int64_t apart = w_.geometry.in_step[last_] * w_.x.strides[rank_ + 1];
    for (const Pixels& p : pixels_) {
      const S* from = line + p.from;
      if (apart == 1)
        for (int64_t j = p.begin; j < p.end; ++j) to[j] = static_cast<T>(*from++) - w_.zero;
      else
        for (int64_t j = p.begin; j < p.end; ++j, from += apart) to[j] = static_cast<T>(*from) - w_.zero;
      to += taken_width_;
    }
  }

  void add(Scratch& scratch, int64_t image, int64_t group) const {
    static const AddTaps<T> multiply = add_taps<T>();
    const Shape& s = w_.s;
    for (int64_t c = 0; c < s.columns; ++c)
      std::fill_n(scratch.sums.data() + c * sums_width_, sums_width_, w_.bias[group * s.columns + c]);
    const T* weights = w_.weights + group * s.depth * w_.part.taps * s.columns;
    const S* channel =
        static_cast<const S*>(w_.x.data) + image * w_.x.strides[0] + group * s.depth * w_.x.strides[1];
    for (int64_t l = 0; l < s.depth; ++l, channel += w_.x.strides[1], weights += w_.part.taps * s.columns)
      for (const Row& row : rows_) {
        const S* at = channel;
        bool inside = true;
        for (size_t d = 0; d < last_; ++d) {
          const int64_t i = scratch.q[d] * w_.geometry.in_step[d] + w_.part.offsets[row.begin * rank_ + d];
          inside &= i >= 0 && i < w_.x.sizes[d + 2];
          at += i * w_.x.strides[d + 2];
        }
        if (!inside) continue;
        take(at, scratch.lines.data());
        multiply(scratch.from.data() + row.begin, row.end - row.begin, weights + row.begin * s.columns,
                 s.columns, count_[last_], scratch.sums.data(), sums_width_);
      }
  }

  void write(const Scratch& scratch, int64_t image, int64_t group) const {
    const TensorRef& y = w_.y;
    const int64_t columns = w_.s.columns, width = count_[last_],
                  step = w_.geometry.out_step[last_] * y.strides[rank_ + 1];
    T* to = static_cast<T*>(y.data) + image * y.strides[0] + group * columns * y.strides[1];
    for (size_t d = 0; d < rank_; ++d)
      to += ((d == last_ ? first_[d] : scratch.q[d]) * w_.geometry.out_step[d] + w_.part.shifts[d]) *
            y.strides[d + 2];
    for (int64_t c = 0; c < columns; ++c, to += y.strides[1]) {
      const T* sums = scratch.sums.data() + c * sums_width_;
      if (step == 1)
        std::copy_n(sums, width, to);
      else
        for (int64_t j = 0; j < width; ++j) to[j * step] = sums[j];
    }
  }

  const LineWork<T>& w_;
  size_t rank_, last_;
  std::vector<int64_t> first_, count_;
  std::vector<Row> rows_;
  std::vector<Pixels> pixels_;
  std::vector<int64_t> taps_; ///< where in the copies a tap begins
  int64_t sums_width_ = 0, taken_width_ = 0;
};

} // namespace

bool is_best_by_lines(const ConvProblem& p, std::span<const OperandInfo> inputs, DType result,
                      int64_t vector) {
  const std::span<const int64_t> weights = inputs[1].sizes;
  const int64_t size = size_of(result);
  if (is_float(result) ? inputs[0].dtype != result : result != DType::i32 || !is_byte(inputs[0].dtype))
    return false; // others are rare, and each would be code of its own
  if (p.group < 2 || weights.size() < 3 || weights[0] < 1 || weights[1] < 1) return false;
  const int64_t depth = p.transposed ? weights[0] / p.group : weights[1];
  const int64_t columns = p.transposed ? weights[1] : weights[0] / p.group;
  constexpr int64_t kMaxDepth = 8; // every channel of a group is a line that has to be fetched
  return depth <= kMaxDepth && p.group * columns * size <= vector;
}

bool is_short_line(int64_t width, int64_t step, int64_t size) {
  return 2 * width * size < step * vector_bytes();
}

template <class T> void run_by_lines(const LineWork<T>& work) {
  with_operand<T>(work.x.dtype, [&]<class S>(S) {
    if constexpr (std::is_same_v<S, T> || (std::is_integral_v<T> && sizeof(S) == 1))
      LineRun<T, S>(work).run();
    else
      TBX_INTERNAL(false); // is_best_by_lines
  });
}

template void run_by_lines(const LineWork<float>&);
template void run_by_lines(const LineWork<double>&);
template void run_by_lines(const LineWork<uint32_t>&);

} // namespace tbx::extern_kernels::direct
