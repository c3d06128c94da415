#include "extern_kernels/panel_copy.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/float_formats.h"

namespace tbx::extern_kernels {
namespace {

/// `part` of each: by all threads, unless there is one.
template <class Part> void for_parts(int64_t begin, int64_t end, const Part& part) {
  if (end - begin == 1)
    part(begin);
  else
    tbb::parallel_for(begin, end, part);
}

/// How elements that follow each other are copied.
template <class T> struct Same {
  using From = T;
  void operator()(const T* from, int64_t count, T* to) const { std::copy_n(from, count, to); }
};
struct Widened {
  using From = uint16_t;
  DType type;
  void operator()(const uint16_t* from, int64_t count, float* to) const {
    decode_halves(type, from, count, to);
  }
};

/// Rows [first, last) of a matrix that is stored by rows, into all panels. Narrow panels are made some at a
/// time, so that lines of memory are read one after the other.
template <class Line, class T>
void copy_rows(const Line& line, const typename Line::From* data, T* panels, int64_t panel, int64_t k,
               int64_t n, int64_t row_stride, int64_t first, int64_t last) {
  constexpr int64_t kColumns = 256;
  const int64_t count = (n + panel - 1) / panel, together = std::max<int64_t>(1, kColumns / panel);
  for_parts(0, (count + together - 1) / together, [&](int64_t part) {
    const int64_t end = std::min(count, (part + 1) * together);
    for (int64_t i = first; i < last; ++i)
      for (int64_t p = part * together; p < end; ++p) {
        const int64_t begin = p * panel, width = std::min<int64_t>(panel, n - begin);
        T* to = panels + (p * k + i) * panel;
        line(data + begin + i * row_stride, width, to);
        std::fill_n(to + width, panel - width, T{});
      }
  });
}

constexpr int64_t kRowsOfBlock = 16;

/// Four rows of four columns that lie `step` apart, turned.
void turn(const float* from, int64_t step, float* to, int64_t panel) {
  using Four [[gnu::vector_size(16)]] = float;
  Four a, b, c, d;
  std::memcpy(&a, from, sizeof(a));
  std::memcpy(&b, from + step, sizeof(b));
  std::memcpy(&c, from + 2 * step, sizeof(c));
  std::memcpy(&d, from + 3 * step, sizeof(d));
  const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Four rows[] = {
      __builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
      __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5), __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(to + i * panel, &rows[i], sizeof(rows[i]));
}

/// Columns [first, last) of one that is stored by columns, whole panels of them.
template <class Line, class T>
void copy_columns(const Line& line, const typename Line::From* data, T* panels, int64_t panel, int64_t k,
                  int64_t row_stride, int64_t column_stride, int64_t first, int64_t last) {
  for_parts(first / panel, (last + panel - 1) / panel, [&](int64_t p) {
    T* to = panels + p * k * panel;
    const int64_t begin = p * panel, width = std::min<int64_t>(panel, last - begin);
    const auto* from = data + begin * column_stride;
    if (width < panel) std::fill_n(to, k * panel, T{});
    if constexpr (std::is_same_v<Line, Same<float>>)
      if (row_stride == 1) return turn_columns(from, column_stride, k, width, to, panel);
    // Blocks of rows keep the lines of all columns of the panel in the cache.
    T column[kRowsOfBlock];
    for (int64_t row = 0; row < k; row += kRowsOfBlock) {
      const int64_t end = std::min(row + kRowsOfBlock, k);
      for (int64_t j = 0; j < width; ++j) {
        const auto* place = from + row * row_stride + j * column_stride;
        if (row_stride == 1)
          line(place, end - row, column);
        else
          for (int64_t i = 0; i < end - row; ++i) line(place + i * row_stride, 1, column + i);
        for (int64_t i = row; i < end; ++i) to[i * panel + j] = column[i - row];
      }
    }
  });
}

// What lies between the strips is read by nobody, for the system brings in pages by the dozen.
template <class Line, class T>
void copy_strips(const Line& line, const typename Line::From* data, T* panels, int64_t width, int64_t k,
                 int64_t n, int64_t row_stride, int64_t column_stride, const Copied& copied) {
  constexpr int64_t kSize = sizeof(typename Line::From), kStrip = (8 << 20) / kSize;
  const bool by_rows = column_stride == 1;
  const int64_t step_of = by_rows ? row_stride : column_stride, lines = by_rows ? k : n;
  const int64_t of_line = by_rows ? n : (k - 1) * row_stride + 1; // elements from its first to its last
  const int64_t step = std::max<int64_t>(width, kStrip / std::max<int64_t>(1, step_of) / width * width);
  for (int64_t first = 0; first < lines; first += step) {
    const int64_t last = std::min(first + step, lines);
    if (by_rows)
      copy_rows(line, data, panels, width, k, n, row_stride, first, last);
    else
      copy_columns(line, data, panels, width, k, row_stride, column_stride, first, last);
    if (copied) copied(data + first * step_of, ((last - first - 1) * step_of + of_line) * kSize);
  }
}

} // namespace

void turn_columns(const float* from, int64_t stride, int64_t k, int64_t columns, float* to, int64_t row) {
  for (int64_t begin = 0; begin < k; begin += kRowsOfBlock) {
    const int64_t end = std::min(begin + kRowsOfBlock, k);
    int64_t j = 0;
    for (; end - begin == kRowsOfBlock && j + 4 <= columns; j += 4)
      for (int64_t i = begin; i < end; i += 4) turn(from + i + j * stride, stride, to + i * row + j, row);
    for (; j < columns; ++j)
      for (int64_t i = begin; i < end; ++i) to[i * row + j] = from[i + j * stride];
  }
}

template <class T>
void copy_panels(const T* data, T* panels, int64_t width, int64_t k, int64_t n, int64_t row_stride,
                 int64_t column_stride, const Copied& copied) {
  copy_strips(Same<T>{}, data, panels, width, k, n, row_stride, column_stride, copied);
}

template void copy_panels(const float*, float*, int64_t, int64_t, int64_t, int64_t, int64_t, const Copied&);
template void copy_panels(const uint16_t*, uint16_t*, int64_t, int64_t, int64_t, int64_t, int64_t,
                          const Copied&);

void copy_panels(DType from, const uint16_t* data, float* panels, int64_t width, int64_t k, int64_t n,
                 int64_t row_stride, int64_t column_stride, const Copied& copied) {
  copy_strips(Widened{from}, data, panels, width, k, n, row_stride, column_stride, copied);
}

} // namespace tbx::extern_kernels
