#include "extern_kernels/direct/tap_products.h"

#include <cmath>

#include "base/caches.h"
#include "base/rounding.h"
#include "extern_kernels/direct/operands.h"

namespace tbx::extern_kernels::direct {
namespace {

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

/// sums[image, group, element of the kernel, result, pixel]; `n` of a group.
template <class T, class R>
void multiply_pixels(const Shape& s, const Image<T>& x, int64_t n, const T* weights, int64_t first_image,
                     int64_t images, R* sums) {
  const auto sizes = x.sizes.subspan(2);
  const int64_t pixels = volume(sizes), panels = (pixels + kPanel<T> - 1) / kPanel<T>,
                tiles = (n + kRows - 1) / kRows;
  int64_t cuts = 1; // few pixels: threads share the elements of the kernel
  const int64_t wanted = int64_t{2} * tbb::this_task_arena::max_concurrency();
  const int64_t turns = images * s.groups * panels;
  if (turns < wanted && turns > 0) cuts = std::min(tiles, (wanted + turns - 1) / turns);
  in_pieces(turns * cuts, 2.0 * static_cast<double>(images * pixels) * s.in_channels() * n,
            [&](int64_t begin, int64_t end) {
              std::vector<int64_t> at;
              std::vector<T> own(static_cast<size_t>(s.depth * kPanel<T>));
              for (int64_t i = begin; i < end; ++i) {
                const int64_t cut = i % cuts, first = i / cuts % panels * kPanel<T>;
                const int64_t group = i / cuts / panels % s.groups, image = i / cuts / panels / s.groups;
                const T* of_group =
                    x.data + (first_image + image) * x.strides[0] + group * s.depth * x.channel_step;
                const int width = static_cast<int>(std::min<int64_t>(kPanel<T>, pixels - first));
                const T* panel_data = own.data();
                int64_t step = kPanel<T>;
                if (x.channel_step != 1 && width == kPanel<T>) {
                  panel_data = of_group + first;
                  step = x.channel_step;
                } else {
                  const T* taken[kPanel<T>];
                  for (int j = 0; j < width; ++j) {
                    unravel(first + j, sizes, at);
                    taken[j] = of_group;
                    for (size_t d = 0; d < at.size(); ++d) taken[j] += at[d] * x.strides[d + 1];
                  }
                  turn(taken, width, s.depth, x.channel_step, own.data());
                }
                for (int64_t row = tiles * cut / cuts * kRows;
                     row < std::min(n, tiles * (cut + 1) / cuts * kRows); row += kRows) {
                  alignas(64) R tile[kRows * kPanel<T>];
                  const T* rows[kRows];
                  const int count = static_cast<int>(std::min<int64_t>(kRows, n - row));
                  for (int r = 0; r < count; ++r) rows[r] = weights + (group * n + row + r) * s.depth;
                  multiply_tile(rows, count, 1, 0, s.depth, panel_data, step, width, tile);
                  for (int r = 0; r < count; ++r)
                    std::copy_n(tile + r * kPanel<T>, width,
                                sums + ((image * s.groups + group) * n + row + r) * pixels + first);
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

  /// `sums`: of the image. `line`: room for the lines of a group's results.
  void add(const R* sums, int64_t image, std::span<const int64_t> at, const R* bias,
           std::vector<R>& line) const {
    const int64_t columns = s_.columns, of_group = volume(kernel_) * columns * pixels_;
    R* to = static_cast<R*>(y_.data) + image * y_.strides[0];
    for (size_t d = 0; d + 1 < rank_; ++d) to += at[d] * y_.strides[d + 2];
    for (int64_t group = 0; group < s_.groups; ++group)
      add_group(sums + group * of_group, to + group * columns * y_.strides[1], at, bias + group * columns,
                line);
  }

private:
  void add_group(const R* sums, R* to, std::span<const int64_t> at, const R* bias,
                 std::vector<R>& line) const {
    const int64_t width = y_.sizes.back(), columns = s_.columns, step = y_.strides.back();
    if (step == 1) return add_bias(sums, at, bias, {to, y_.strides[1]});
    line.resize(static_cast<size_t>(width * columns));
    add_bias(sums, at, bias, {line.data(), width});
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t i = 0; i < width; ++i) to[i * step + c * y_.strides[1]] = line[c * width + i];
  }

  struct Lines { ///< of the results of a group
    R* data;
    int64_t apart;
  };

  void add_bias(const R* sums, std::span<const int64_t> at, const R* bias, const Lines& lines) const {
    for (int64_t c = 0; c < s_.columns; ++c)
      std::fill_n(lines.data + c * lines.apart, y_.sizes.back(), bias[c]);
    add_dimension(sums, 0, 0, 0, at, lines);
  }

  /// `pixel`, `element`: numbers made of the dimensions before `d`.
  void add_dimension(const R* sums, size_t d, int64_t pixel, int64_t element, std::span<const int64_t> at,
                     const Lines& lines) const {
    if (d + 1 == rank_) return add_line(sums, pixel * in_[d], element * kernel_[d], lines);
    for (int64_t k = 0; k < kernel_[d]; ++k) {
      int64_t i = p_.transposed ? at[d] + p_.pads_begin[d] - k * p_.dilations[d]
                                : at[d] - p_.pads_begin[d] + k * p_.dilations[d];
      if (i < 0 || (p_.transposed && i % p_.strides[d] != 0)) continue;
      if (p_.transposed) i /= p_.strides[d];
      if (i < in_[d]) add_dimension(sums, d + 1, pixel * in_[d] + i, element * kernel_[d] + k, at, lines);
    }
  }

  /// Pixel i of the line gives result i * step + shift for each element of the kernel.
  void add_line(const R* sums, int64_t pixel, int64_t element, const Lines& lines) const {
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
        R* to = lines.data + c * lines.apart + shift;
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

/// By pixel and channel, in products of single elements: what adding a sum takes.
static constexpr int64_t kLanes = 16, kAdding = 8;

bool is_best_by_taps(const ConvProblem& p, std::span<const int64_t> weights) {
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
  constexpr int64_t kTurning = 16; // the image
  return columns < kLanes &&
         elements * kLanes > 3 * (round_up(sums, kRows) + kAdding * sums / depth + kTurning);
}

bool is_less_by_taps(const ConvProblem& p, std::span<const int64_t> weights, std::span<const int64_t> in,
                     std::span<const int64_t> out, int64_t size) {
  // Found with 4,301 of the shapes that come here, of 1 to 3 dimensions, 1 to 32 groups and 1 to 15 results,
  // on a CPU with AVX-512: 0.46 of the time of tiles in the mean, 1.02 of the better one's.
  constexpr double kFinding = 512; // of a result, in tiles: its pixels, and its place
  constexpr int64_t kMostMemory = 1 << 24, kMostOfImage = 16;
  if (!p.transposed || weights.size() < 3 || weights[0] < p.group || weights[1] < 1) return false;
  const int64_t depth = weights[0] / p.group, columns = weights[1];
  if (columns >= kLanes || group_vectors(p.group, depth, columns, size).lanes > 0) return false;
  // By pixel. Some results have no tap, and of the taps of a result some lie outside of the image.
  double sums = static_cast<double>(columns), results = 1, taps = 1;
  double bytes = static_cast<double>(p.group * size); // of all sums of an image
  for (size_t d = 0; d + 2 < weights.size(); ++d) {
    if (weights[d + 2] < 1 || p.pads_begin[d] < 0) return false;
    const auto kernel = static_cast<double>(weights[d + 2]), step = static_cast<double>(p.strides[d]);
    const bool known = d + 2 < in.size() && d + 2 < out.size() && in[d + 2] > 0 && out[d + 2] > 0;
    const double points = known ? static_cast<double>(out[d + 2]) / static_cast<double>(in[d + 2]) / step : 1;
    sums *= kernel;
    taps *= points * kernel;
    results *= points * std::min(kernel, step);
    bytes *= known ? static_cast<double>(in[d + 2]) : HUGE_VAL;
  }
  const auto channels = static_cast<double>(depth);
  if (sums > kMostOfImage * channels && bytes * sums > kMostMemory) return false;
  return 1.5 * kAdding * sums / channels < taps * kLanes + results * kFinding / channels;
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
  const int64_t of_image = volume(in) * elements * s.out_channels();
  return of_image == 0
             ? 0
             : of_image * std::clamp<int64_t>(at_once / of_image, 1, std::max<int64_t>(1, s.images));
}

template <class T, class R>
void run_by_taps(const ConvProblem& p, const Shape& s, std::span<const int64_t> kernel, const Image<T>& x,
                 const T* weights, const R* bias, const TensorRef& y, R* between) {
  const auto in = x.sizes.subspan(2), out = y.sizes.subspan(2, kernel.size() - 1);
  const int64_t n = volume(kernel) * s.columns, pixels = volume(in), lines = volume(out);
  const int64_t of_image = pixels * n * s.groups, results = lines * y.sizes.back() * s.out_channels();
  const int64_t together = pixels == 0 ? s.images : tap_sums(s, in, volume(kernel)) / of_image;
  const LineSums<R> sums(p, s, kernel, in, y);
  for (int64_t first = 0; first < s.images; first += together) {
    const int64_t images = std::min(together, s.images - first);
    multiply_pixels(s, x, n, weights, first, images, between);
    in_pieces(images * lines, static_cast<double>(images) * static_cast<double>(of_image + results),
              [&](int64_t begin, int64_t end) {
                std::vector<int64_t> at;
                std::vector<R> line;
                for (int64_t i = begin; i < end; ++i) {
                  unravel(i % lines, out, at);
                  sums.add(between + i / lines * of_image, first + i / lines, at, bias, line);
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
