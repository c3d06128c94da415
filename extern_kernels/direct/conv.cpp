// Convolutions of every rank, group and stride without a library: f32 where the library has only a plain
// loop, f64 and integers. Each tile of results is a product of rows of the input, found through pointers,
// with packed weights; depthwise ones go through channels by vectors.
#include <tbb/blocked_range.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "extern_kernels/direct/geometry.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/direct/tile.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels {
namespace direct {
namespace {

int64_t volume(std::span<const int64_t> s) {
  return std::accumulate(s.begin(), s.end(), int64_t{1}, std::multiplies<>());
}

/// Numbers of one convolution.
struct Shape {
  int64_t images, groups, depth, columns; ///< depth, columns: channels of a group that go in and come out
  bool depthwise;
  int64_t in_channels() const { return groups * depth; }
  int64_t out_channels() const { return groups * columns; }
};

Shape shape_of(const ConvProblem& p, std::span<const int64_t> weights, int64_t images) {
  Shape s;
  s.images = images;
  s.groups = p.group;
  s.depth = p.transposed ? weights[0] / p.group : weights[1];
  s.columns = p.transposed ? weights[1] : weights[0] / p.group;
  // Few results per channel: vectors of channels waste less than vectors of results.
  s.depthwise = s.depth == 1 && s.groups > 1 && s.columns <= 4;
  return s;
}

/// Panels of a part: [group, panel, tap, depth, kPanel] with columns [phase, column of the group]; depthwise:
/// [column, tap, group].
template <class T> int64_t packed_elements(const Part& part, const Shape& s) {
  if (s.depthwise) return s.columns * part.taps * s.groups;
  const int64_t n = part.phases * s.columns, panels = (n + kPanel<T> - 1) / kPanel<T>;
  return s.groups * panels * part.taps * s.depth * kPanel<T>;
}

template <class T, class S>
void pack(const ConvProblem& p, const Part& part, const Shape& s, const TensorRef& w, T* to) {
  const auto* from = static_cast<const S*>(w.data);
  const auto kernel = w.sizes.subspan(2);
  const int64_t elements = volume(kernel);
  std::vector<int64_t> place(static_cast<size_t>(elements));
  for (int64_t e = 0; e < elements; ++e) {
    int64_t rest = e;
    for (size_t d = kernel.size(); d-- > 0; rest /= kernel[d])
      place[e] += rest % kernel[d] * w.strides[d + 2];
  }
  auto value = [&](int64_t phase, int64_t tap, int64_t group, int64_t l, int64_t column) {
    const int64_t e = part.kernel[phase * part.taps + tap];
    if (e < 0) return T(0);
    const int64_t first = p.transposed ? group * s.depth + l : group * s.columns + column;
    return static_cast<T>(from[first * w.strides[0] + (p.transposed ? column : l) * w.strides[1] + place[e]]);
  };
  const double work = static_cast<double>(packed_elements<T>(part, s)) * 4;
  if (s.depthwise) {
    in_pieces(s.columns * part.taps, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t g = 0; g < s.groups; ++g)
          to[i * s.groups + g] = value(0, i % part.taps, g, 0, i / part.taps);
    });
    return;
  }
  const int64_t n = part.phases * s.columns, panels = (n + kPanel<T> - 1) / kPanel<T>;
  in_pieces(s.groups * panels * part.taps, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t tap = i % part.taps, panel = i / part.taps % panels, group = i / part.taps / panels;
      for (int64_t l = 0; l < s.depth; ++l)
        for (int64_t j = 0; j < kPanel<T>; ++j) {
          const int64_t column = panel * kPanel<T> + j;
          to[(i * s.depth + l) * kPanel<T> + j] =
              column < n ? value(column / s.columns, tap, group, l, column % s.columns) : T(0);
        }
    }
  });
}

template <class T>
void pack(const ConvProblem& p, const Part& part, const Shape& s, const TensorRef& w, T* to) {
  with_storage(w.dtype, [&]<class S>(S) { pack<T, S>(p, part, s, w, to); });
}

/// The input with channels side by side, in the type of the sums and without its zero point.
template <class T> struct Image {
  const T* data;
  std::vector<int64_t> strides; ///< of images and the spatial dimensions
  std::span<const int64_t> sizes;
  const T* zeros; ///< a pixel of padding
};

template <class T> bool is_ready(const ConvProblem& p, const TensorRef& x) {
  return p.x_zero < 0 && size_of(x.dtype) == static_cast<int64_t>(sizeof(T)) &&
         (x.strides[1] == 1 || x.sizes[1] == 1);
}

template <class T> void copy_image(const TensorRef& x, T zero, T* to) {
  const int64_t channels = x.sizes[1], pixels = x.sizes[0] * volume(x.sizes.subspan(2));
  with_storage(x.dtype, [&]<class S>(S) {
    in_pieces(pixels, static_cast<double>(pixels) * channels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t rest = i, at = 0;
        for (size_t d = x.sizes.size(); d-- > 2; rest /= x.sizes[d]) at += rest % x.sizes[d] * x.strides[d];
        const S* from = static_cast<const S*>(x.data) + at + rest * x.strides[0];
        for (int64_t c = 0; c < channels; ++c)
          to[i * channels + c] = static_cast<T>(from[c * x.strides[1]]) - zero;
      }
    });
  });
}

/// The results of one part.
template <class T> class PartRun {
public:
  PartRun(const Geometry& geometry, const Part& part, const Shape& s, const Image<T>& x, const T* weights,
          const T* bias, const TensorRef& y)
      : geometry_(geometry), part_(part), s_(s), x_(x), weights_(weights), bias_(bias), y_(y),
        rank_(geometry.in_step.size()) {
    part.grid(y.sizes.subspan(2), geometry.out_step, first_, count_);
  }

  void run() const {
    const int64_t points = volume(count_);
    if (points == 0) return; // all results of this part lie outside
    const int64_t blocks = (points + kBlock - 1) / kBlock;
    const int64_t panels = s_.depthwise ? 1 : s_.groups * panels_of_group();
    // Few points: threads share the columns.
    int64_t cuts = 1;
    const int64_t wanted = 2 * tbb::this_task_arena::max_concurrency();
    if (s_.images * blocks < wanted)
      cuts = std::min(panels, (wanted + s_.images * blocks - 1) / (s_.images * blocks));
    const double work = 2.0 * static_cast<double>(s_.images * points) * part_.taps * s_.depth * part_.phases *
                        s_.out_channels();
    in_pieces(s_.images * blocks * cuts, work, [&](int64_t begin, int64_t end) {
      Scratch scratch;
      scratch.rows.resize(static_cast<size_t>(s_.depthwise ? part_.taps : kBlock * part_.taps));
      scratch.sums.resize(static_cast<size_t>(s_.depthwise ? s_.groups : kRows * kPanel<T>));
      for (int64_t i = begin; i < end; ++i) {
        const int64_t cut = i % cuts, block = i / cuts % blocks, image = i / cuts / blocks;
        const int64_t from = block * kBlock, to = std::min(points, from + kBlock);
        if (s_.depthwise)
          channels(scratch, image, from, to);
        else
          products(scratch, image, from, to, panels * cut / cuts, panels * (cut + 1) / cuts);
      }
    });
  }

private:
  static constexpr int64_t kBlock = 8 * kRows; ///< points that are done with one panel after the other

  struct Scratch {
    std::vector<const T*> rows;
    std::vector<T> sums;
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
      at += i * x_.strides[d + 1];
    }
    return at;
  }

  /// Where the results of a grid point for a phase begin; nullptr: outside.
  T* result(int64_t image, const int64_t* q, int64_t phase) const {
    T* at = static_cast<T*>(y_.data) + image * y_.strides[0];
    for (size_t d = 0; d < rank_; ++d) {
      const int64_t o = q[d] * geometry_.out_step[d] + part_.shifts[phase * rank_ + d];
      if (o < 0 || o >= y_.sizes[d + 2]) return nullptr;
      at += o * y_.strides[d + 2];
    }
    return at;
  }

  void channels(Scratch& scratch, int64_t image, int64_t from, int64_t to) const {
    const int64_t step = y_.strides[1];
    std::vector<int64_t> q(rank_);
    for (int64_t point = from; point < to; ++point) {
      place(point, q.data());
      T* y = result(image, q.data(), 0);
      if (!y) continue;
      for (int64_t t = 0; t < part_.taps; ++t) scratch.rows[t] = pixel(image, q.data(), t);
      for (int64_t column = 0; column < s_.columns; ++column) {
        const bool direct = s_.columns == 1 && step == 1;
        T* sums = direct ? y : scratch.sums.data();
        tiles<T>().multiply_channels(scratch.rows.data(), part_.taps,
                                     weights_ + column * part_.taps * s_.groups, bias_ + column * s_.groups,
                                     s_.groups, sums);
        if (direct) continue;
        for (int64_t g = 0; g < s_.groups; ++g) y[(g * s_.columns + column) * step] = sums[g];
      }
    }
  }

  void products(Scratch& scratch, int64_t image, int64_t from, int64_t to, int64_t begin, int64_t end) const {
    std::vector<int64_t> q(static_cast<size_t>((to - from) * rank_));
    for (int64_t point = from; point < to; ++point) {
      int64_t* at = q.data() + (point - from) * rank_;
      place(point, at);
      const int64_t tile = (point - from) / kRows, row = (point - from) % kRows;
      for (int64_t t = 0; t < part_.taps; ++t)
        scratch.rows[(tile * part_.taps + t) * kRows + row] = pixel(image, at, t);
    }
    const int64_t size = part_.taps * s_.depth * kPanel<T>, all = part_.phases * s_.columns;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = i / panels_of_group(), column = i % panels_of_group() * kPanel<T>;
      const int width = static_cast<int>(std::min<int64_t>(kPanel<T>, all - column));
      for (int64_t tile = 0; tile * kRows < to - from; ++tile) {
        const int rows = static_cast<int>(std::min<int64_t>(kRows, to - from - tile * kRows));
        tiles<T>().multiply(scratch.rows.data() + tile * part_.taps * kRows, rows, part_.taps,
                            group * s_.depth, s_.depth, weights_ + i * size, kPanel<T>, width,
                            scratch.sums.data());
        for (int r = 0; r < rows; ++r)
          write(image, q.data() + (tile * kRows + r) * rank_, group, column, width,
                scratch.sums.data() + r * kPanel<T>);
      }
    }
  }

  void write(int64_t image, const int64_t* q, int64_t group, int64_t column, int width, const T* sums) const {
    const int64_t step = y_.strides[1];
    for (int j = 0; j < width;) {
      const int64_t phase = (column + j) / s_.columns, m = (column + j) % s_.columns;
      const int run = static_cast<int>(std::min<int64_t>(width - j, s_.columns - m));
      if (T* y = result(image, q, phase)) {
        const T* bias = bias_ + group * s_.columns + m;
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
  const T *weights_, *bias_;
  const TensorRef& y_;
  size_t rank_;
  std::vector<int64_t> first_, count_;
};

class DirectConv : public ExternKernel {
public:
  DirectConv(const ConvProblem& p, const OperandInfo& weights, DType result) : p_(p) {
    const std::span<const int64_t> kernel = std::span(weights.sizes).subspan(2);
    with_element(result, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, std::nullptr_t>) {
        const std::vector<int64_t>& w = weights.sizes;
        const bool known = w[0] >= 0 && w[1] >= 0;
        const int64_t columns = !known ? 0 : shape_of(p_, w, 1).depthwise ? 0 : shape_of(p_, w, 1).columns;
        geometry_ = geometry_of(p_, kernel, columns, kPanel<T>);
        if (weights.constant) pack_constant<T>(weights);
      }
    });
  }

  std::string description() const override { return "own " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return packed_bytes_; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    Memory memory(nullptr);
    with_element(outputs[0].dtype, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, std::nullptr_t>) {
        take_image<T>(memory, inputs[0]);
        take_bias<T>(memory, outputs[0]);
        if (!packed_) take_weights<T>(memory, shape_of(p_, inputs[1].sizes, outputs[0].sizes[0]));
      }
    });
    return memory.used();
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    with_element(args.outputs[0].dtype, [&]<class T>(T) {
      if constexpr (!std::is_same_v<T, std::nullptr_t>) compute<T>(args);
    });
  }

private:
  template <class T> void pack_constant(const OperandInfo& info) {
    const Shape s = shape_of(p_, info.sizes, 1);
    int64_t elements = 0;
    for (const Part& part : geometry_.parts) elements += packed_elements<T>(part, s);
    packed_bytes_ = elements * static_cast<int64_t>(sizeof(T));
    packed_ = allocate_aligned(packed_bytes_);
    std::shared_ptr<const Tensor> t = widened(info.constant);
    const TensorRef w{const_cast<std::byte*>(t->data), t->dtype, info.sizes, info.strides};
    auto* to = static_cast<T*>(packed_.get());
    for (const Part& part : geometry_.parts) {
      pack(p_, part, s, w, to);
      to += packed_elements<T>(part, s);
    }
    drop_pages(*info.constant);
  }

  template <class T> std::pair<T*, T*> take_image(Memory& memory, const TensorRef& x) const {
    T* zeros = memory.take<T>(x.sizes[1]);
    return {zeros, is_ready<T>(p_, x) ? nullptr : memory.take<T>(x.numel())};
  }
  template <class T> T* take_bias(Memory& memory, const TensorRef& y) const {
    return memory.take<T>(y.sizes[1]);
  }
  template <class T> T* take_weights(Memory& memory, const Shape& s) const {
    int64_t elements = 0;
    for (const Part& part : geometry_.parts) elements += packed_elements<T>(part, s);
    return memory.take<T>(elements);
  }

  template <class T> void compute(const RunArgs& args) const {
    const TensorRef &x = args.inputs[0], &w = args.inputs[1], &y = args.outputs[0];
    const Shape s = shape_of(p_, w.sizes, y.sizes[0]);
    Memory memory(args.workspace);
    auto [zeros, copy] = take_image<T>(memory, x);
    std::fill_n(zeros, x.sizes[1], T(0));
    Image<T> image{static_cast<const T*>(x.data), {x.strides[0]}, x.sizes, zeros};
    if (is_ready<T>(p_, x)) {
      image.strides.insert(image.strides.end(), x.strides.begin() + 2, x.strides.end());
    } else {
      copy_image<T>(x, zero_point<T>(args.inputs, p_.x_zero), copy);
      image.data = copy;
      image.strides.assign(x.sizes.size() - 1, x.sizes[1]);
      for (size_t d = x.sizes.size() - 1; d-- > 1;) image.strides[d - 1] = image.strides[d] * x.sizes[d + 1];
      // [images, spatial...]
    }
    T* bias = take_bias<T>(memory, y);
    fill_bias(args, s, bias);
    T* packed = packed_ ? static_cast<T*>(packed_.get()) : take_weights<T>(memory, s);
    for (const Part& part : geometry_.parts) {
      if (!packed_) pack(p_, part, s, w, packed);
      PartRun<T>(geometry_, part, s, image, packed, bias, y).run();
      packed += packed_elements<T>(part, s);
    }
  }

  /// In the order of the sums: of depthwise convolutions, one after the other of each column.
  template <class T> void fill_bias(const RunArgs& args, const Shape& s, T* bias) const {
    std::fill_n(bias, s.out_channels(), T(0));
    if (!p_.has_bias) return;
    const std::vector<T> given = to_dense<T>(args.inputs[2]);
    for (int64_t m = 0; m < s.out_channels(); ++m)
      bias[s.depthwise ? m % s.columns * s.groups + m / s.columns : m] = given[m];
  }

  ConvProblem p_;
  Geometry geometry_;
  std::shared_ptr<void> packed_;
  int64_t packed_bytes_ = 0;
};

} // namespace
} // namespace direct

std::string supports_direct_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs) {
  const auto& p = std::get<ConvProblem>(problem);
  if (!p.post_ops.empty()) return "post-operations";
  if (std::string reason = direct::refused_types(inputs, outputs[0].dtype); !reason.empty()) return reason;
  if (const char* reason = direct::refused_geometry(p, std::span(inputs[1].sizes).subspan(2))) return reason;
  if (inputs[1].constant && inputs[1].strides.empty()) return "weights without known strides";
  return {};
}

std::unique_ptr<ExternKernel> make_direct_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs) {
  return std::make_unique<direct::DirectConv>(std::get<ConvProblem>(problem), inputs[1], outputs[0].dtype);
}

} // namespace tbx::extern_kernels
