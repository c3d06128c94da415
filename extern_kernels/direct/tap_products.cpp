#include "extern_kernels/direct/tap_products.h"

#include "base/caches.h"
#include "extern_kernels/direct/operands.h"

namespace tbx::extern_kernels::direct {
namespace {

int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/// Where the spatial indices of a number are.
void unravel(int64_t number, std::span<const int64_t> sizes, std::vector<int64_t>& at) {
  at.resize(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; number /= sizes[d]) at[d] = number % sizes[d];
}

/// Pixels side by side: to[channel, pixel], kPanel of them.
template <class T> void turn(const T* const* pixels, int64_t count, int64_t depth, int64_t step, T* to) {
  constexpr int64_t kTogether = 16; // channels whose lines stay in the cache
  for (int64_t first = 0; first < depth; first += kTogether)
    for (int64_t j = 0; j < kPanel<T>; ++j)
      for (int64_t l = first; l < std::min(first + kTogether, depth); ++l)
        to[l * kPanel<T> + j] = j < count ? pixels[j][l * step] : T(0);
}

/// sums[image, element of the kernel, result, pixel].
template <class T, class R>
void multiply_pixels(const Shape& s, const Image<T>& x, int64_t n, const T* weights, int64_t first_image,
                     int64_t images, R* sums) {
  const auto sizes = x.sizes.subspan(2);
  const int64_t pixels = volume(sizes), panels = (pixels + kPanel<T> - 1) / kPanel<T>,
                tiles = (n + kRows - 1) / kRows;
  int64_t cuts = 1; // few pixels: threads share the elements of the kernel
  const int64_t wanted = int64_t{2} * tbb::this_task_arena::max_concurrency();
  if (images * panels < wanted) cuts = std::min(tiles, (wanted + images * panels - 1) / (images * panels));
  in_pieces(images * panels * cuts, 2.0 * static_cast<double>(images * pixels) * s.depth * n,
            [&](int64_t begin, int64_t end) {
              std::vector<int64_t> at;
              std::vector<T> own(static_cast<size_t>(s.depth * kPanel<T>));
              for (int64_t i = begin; i < end; ++i) {
                const int64_t cut = i % cuts, first = i / cuts % panels * kPanel<T>,
                              image = i / cuts / panels;
                const int width = static_cast<int>(std::min<int64_t>(kPanel<T>, pixels - first));
                const T* panel_data = own.data();
                int64_t step = kPanel<T>;
                if (x.channel_step != 1 && width == kPanel<T>) {
                  panel_data = x.data + (first_image + image) * x.strides[0] + first;
                  step = x.channel_step;
                } else {
                  const T* taken[kPanel<T>];
                  for (int j = 0; j < width; ++j) {
                    unravel(first + j, sizes, at);
                    taken[j] = x.data + (first_image + image) * x.strides[0];
                    for (size_t d = 0; d < at.size(); ++d) taken[j] += at[d] * x.strides[d + 1];
                  }
                  turn(taken, width, s.depth, x.channel_step, own.data());
                }
                for (int64_t row = tiles * cut / cuts * kRows;
                     row < std::min(n, tiles * (cut + 1) / cuts * kRows); row += kRows) {
                  alignas(64) R tile[kRows * kPanel<T>];
                  const T* rows[kRows];
                  const int count = static_cast<int>(std::min<int64_t>(kRows, n - row));
                  for (int r = 0; r < count; ++r) rows[r] = weights + (row + r) * s.depth;
                  multiply_tile(rows, count, 1, 0, s.depth, panel_data, step, width, tile);
                  for (int r = 0; r < count; ++r)
                    std::copy_n(tile + r * kPanel<T>, width, sums + (image * n + row + r) * pixels + first);
                }
              }
            });
}

/// Adds what belongs to one line of results (all but the last spatial dimension are fixed).
template <class R> class LineSums {
public:
  LineSums(const ConvProblem& p, const Shape& s, std::span<const int64_t> kernel, std::span<const int64_t> in,
           const TensorRef& y)
      : p_(p), s_(s), kernel_(kernel), in_(in), y_(y), rank_(kernel.size()), pixels_(volume(in)) {}

  /// `sums`: of the image. `line`: room for a line of results.
  void add(const R* sums, int64_t image, std::span<const int64_t> at, const R* bias,
           std::vector<R>& line) const {
    const int64_t width = y_.sizes.back(), columns = s_.columns, step = y_.strides.back();
    line.resize(static_cast<size_t>(width * columns));
    for (int64_t c = 0; c < columns; ++c) std::fill_n(line.data() + c * width, width, bias[c]);
    add_dimension(sums, 0, 0, 0, at, line.data());
    R* to = static_cast<R*>(y_.data) + image * y_.strides[0];
    for (size_t d = 0; d + 1 < rank_; ++d) to += at[d] * y_.strides[d + 2];
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t i = 0; i < width; ++i) to[i * step + c * y_.strides[1]] = line[c * width + i];
  }

private:
  /// `pixel`, `element`: numbers made of the dimensions before `d`.
  void add_dimension(const R* sums, size_t d, int64_t pixel, int64_t element, std::span<const int64_t> at,
                     R* line) const {
    if (d + 1 == rank_) return add_line(sums, pixel * in_[d], element * kernel_[d], line);
    for (int64_t k = 0; k < kernel_[d]; ++k) {
      int64_t i = p_.transposed ? at[d] + p_.pads_begin[d] - k * p_.dilations[d]
                                : at[d] - p_.pads_begin[d] + k * p_.dilations[d];
      if (i < 0 || (p_.transposed && i % p_.strides[d] != 0)) continue;
      if (p_.transposed) i /= p_.strides[d];
      if (i < in_[d]) add_dimension(sums, d + 1, pixel * in_[d] + i, element * kernel_[d] + k, at, line);
    }
  }

  /// Pixel i of the line gives result i * step + shift for each element of the kernel.
  void add_line(const R* sums, int64_t pixel, int64_t element, R* line) const {
    const size_t d = rank_ - 1;
    const int64_t width = y_.sizes.back(), columns = s_.columns;
    const int64_t step = p_.transposed ? p_.strides[d] : 1;
    for (int64_t k = 0; k < kernel_[d]; ++k) {
      const int64_t shift =
          p_.transposed ? k * p_.dilations[d] - p_.pads_begin[d] : p_.pads_begin[d] - k * p_.dilations[d];
      const int64_t begin = shift >= 0 ? 0 : (-shift + step - 1) / step;
      const int64_t end = width - shift <= 0 ? 0 : std::min(in_[d], (width - shift + step - 1) / step);
      for (int64_t c = 0; c < columns; ++c) {
        const R* from = sums + ((element + k) * columns + c) * pixels_ + pixel;
        R* to = line + c * width + shift;
        if (step == 1)
          for (int64_t i = begin; i < end; ++i) to[i] += from[i];
        else
          for (int64_t i = begin; i < end; ++i) to[i * step] += from[i];
      }
    }
  }

  const ConvProblem& p_;
  const Shape& s_;
  std::span<const int64_t> kernel_, in_;
  const TensorRef& y_;
  size_t rank_;
  int64_t pixels_;
};

} // namespace

bool is_best_by_taps(const ConvProblem& p, std::span<const int64_t> weights) {
  // By pixel and channel, in products of single elements: what adding a sum takes, and turning the image.
  constexpr int64_t kLanes = 16, kAdding = 8, kTurning = 16;
  if (p.group != 1 || weights.size() < 3 || weights[0] < 1 || weights[1] < 1) return false;
  const int64_t depth = weights[p.transposed ? 0 : 1], columns = weights[p.transposed ? 1 : 0];
  int64_t elements = 1;
  for (size_t d = 0; d + 2 < weights.size(); ++d) {
    if (weights[d + 2] < 1 || __builtin_mul_overflow(elements, weights[d + 2], &elements) ||
        elements > kMaxTaps)
      return false;
    // As many results as pixels, or nearly so: at least half of what the kernel reaches over is padding.
    const int64_t reach = (weights[d + 2] - 1) * p.dilations[d];
    if (!p.transposed && (p.strides[d] != 1 || 2 * (p.pads_begin[d] + p.pads_end[d]) < reach)) return false;
    if (p.pads_begin[d] < 0) return false;
  }
  const int64_t sums = elements * columns;
  return columns < kLanes &&
         elements * kLanes > 3 * (round_up(sums, kRows) + kAdding * sums / depth + kTurning);
}

Part taps_as_phases(std::span<const int64_t> kernel) {
  Part part;
  part.taps = 1;
  part.phases = volume(kernel);
  part.offsets.assign(kernel.size(), 0);
  for (int64_t e = 0; e < part.phases; ++e) part.kernel.push_back(e);
  return part;
}

int64_t tap_sums(const Shape& s, std::span<const int64_t> in, int64_t elements) {
  const int64_t at_once = host_caches().share_bytes / static_cast<int64_t>(sizeof(float));
  const int64_t of_image = volume(in) * elements * s.columns;
  return of_image == 0 ? 0 : of_image * std::clamp<int64_t>(at_once / of_image, 1, s.images);
}

template <class T, class R>
void run_by_taps(const ConvProblem& p, const Shape& s, std::span<const int64_t> kernel, const Image<T>& x,
                 const T* weights, const R* bias, const TensorRef& y, R* between) {
  const auto in = x.sizes.subspan(2), out = y.sizes.subspan(2, kernel.size() - 1);
  const int64_t n = volume(kernel) * s.columns, pixels = volume(in), lines = volume(out);
  const int64_t together = pixels == 0 ? s.images : tap_sums(s, in, volume(kernel)) / (pixels * n);
  const LineSums<R> sums(p, s, kernel, in, y);
  for (int64_t first = 0; first < s.images; first += together) {
    const int64_t images = std::min(together, s.images - first);
    multiply_pixels(s, x, n, weights, first, images, between);
    in_pieces(images * lines, static_cast<double>(images * pixels) * n, [&](int64_t begin, int64_t end) {
      std::vector<int64_t> at;
      std::vector<R> line;
      for (int64_t i = begin; i < end; ++i) {
        unravel(i % lines, out, at);
        sums.add(between + i / lines * pixels * n, first + i / lines, at, bias, line);
      }
    });
  }
}

template void run_by_taps(const ConvProblem&, const Shape&, std::span<const int64_t>, const Image<float>&,
                          const float*, const float*, const TensorRef&, float*);
template void run_by_taps(const ConvProblem&, const Shape&, std::span<const int64_t>, const Image<float>&,
                          const float*, const uint32_t*, const TensorRef&, uint32_t*);
template void run_by_taps(const ConvProblem&, const Shape&, std::span<const int64_t>, const Image<double>&,
                          const double*, const double*, const TensorRef&, double*);

} // namespace tbx::extern_kernels::direct
