// Convolutions of every rank, group and stride without a library: f32 where the library has only a plain
// loop, f64 and integers. Each tile of results is a product of rows of the input, found through pointers,
// with packed weights; of small groups a vector has the results of several, or of several pixels of a line.
#include <tbb/blocked_range.h>

#include <algorithm>
#include <optional>

#include "base/weight_memory.h"
#include "extern_kernels/direct/lines.h"
#include "extern_kernels/direct/part_run.h"
#include "extern_kernels/direct/tap_products.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels {
namespace direct {
namespace {

/// `size`: bytes of an element.
Shape shape_of(const ConvProblem& p, std::span<const int64_t> weights, int64_t images, int64_t size) {
  Shape s;
  s.images = images;
  s.groups = p.group;
  s.depth = p.transposed ? weights[0] / p.group : weights[1];
  s.columns = p.transposed ? weights[1] : weights[0] / p.group;
  s.vectors = group_vectors(s.groups, s.depth, s.columns, size);
  return s;
}

/// Panels of a part: [group, panel, tap, depth, kPanel] with columns [phase, column of the group]; of small
/// groups as GroupRun has it.
template <class T> int64_t packed_elements(const Part& part, const Shape& s) {
  if (s.by_taps) return s.groups * part.phases * s.columns * s.depth;
  if (s.by_lines) return s.groups * s.depth * part.taps * s.columns;
  if (s.has_small_groups()) return s.vectors.count() * part.taps * s.depth * s.vectors.lanes;
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
  if (s.by_taps) {
    const int64_t sums = part.phases * s.columns; // of a group
    in_pieces(s.groups * sums, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t l = 0; l < s.depth; ++l)
          to[i * s.depth + l] = value(i % sums / s.columns, 0, i / sums, l, i % s.columns);
    });
    return;
  }
  if (s.by_lines) {
    in_pieces(s.groups * s.depth, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t t = 0; t < part.taps; ++t)
          for (int64_t c = 0; c < s.columns; ++c)
            to[(i * part.taps + t) * s.columns + c] = value(0, t, i / s.depth, i % s.depth, c);
    });
    return;
  }
  if (const GroupVectors& v = s.vectors; s.has_small_groups()) {
    in_pieces(v.count(), work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t t = 0; t < part.taps; ++t)
          for (int64_t l = 0; l < s.depth; ++l)
            for (int64_t j = 0; j < v.lanes; ++j)
              to[((i * part.taps + t) * s.depth + l) * v.lanes + j] =
                  j < v.used(i) ? value(0, t, i * v.in_each + j / s.columns, l, j % s.columns) : T(0);
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
  with_operand<T>(w.dtype, [&]<class S>(S) { pack<T, S>(p, part, s, w, to); });
}

template <class T> bool is_ready(const ConvProblem& p, const TensorRef& x) {
  return p.x_zero < 0 && size_of(x.dtype) == static_cast<int64_t>(sizeof(T)) &&
         (x.strides[1] == 1 || x.sizes[1] == 1);
}

/// Planes of channels in which the pixels of an image lie side by side.
template <class T> bool has_planes(const TensorRef& x) {
  int64_t step = 1;
  for (size_t d = x.sizes.size(); d-- > 2; step *= x.sizes[d])
    if (x.sizes[d] != 1 && x.strides[d] != step) return false;
  return size_of(x.dtype) == static_cast<int64_t>(sizeof(T)) && x.strides[1] != 1;
}

/// The sizes of an image's copy: without pixels that no tap takes.
std::vector<int64_t> copied_sizes(const TensorRef& x, const TakenPixels::Places& places) {
  std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.begin() + 2);
  for (const auto& taken : places.taken) sizes.push_back(static_cast<int64_t>(taken.size()));
  return sizes;
}

/// Channels side by side: to[pixel, channel].
template <class T> void copy_image(const TensorRef& x, const TakenPixels::Places& places, T zero, T* to) {
  constexpr int64_t kTogether = 16; // pixels whose lines of channels stay in the cache
  const std::vector<int64_t> sizes = copied_sizes(x, places);
  const size_t last = sizes.size() - 1;
  const int64_t channels = sizes[1], width = sizes[last], blocks = (width + kTogether - 1) / kTogether;
  const int64_t lines = sizes[0] * volume(std::span(sizes).subspan(2, last - 2));
  with_operand<T>(x.dtype, [&]<class S>(S) {
    in_pieces(lines * blocks, static_cast<double>(lines) * width * channels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t rest = i / blocks, at = 0;
        for (size_t d = last; d-- > 2; rest /= sizes[d])
          at += places.taken[d - 2][rest % sizes[d]] * x.strides[d];
        const S* from = static_cast<const S*>(x.data) + at + rest * x.strides[0];
        const int64_t first = i % blocks * kTogether, count = std::min(kTogether, width - first);
        int64_t pixels[kTogether];
        for (int64_t j = 0; j < count; ++j) pixels[j] = places.taken[last - 2][first + j] * x.strides[last];
        const bool in_line = count == kTogether && pixels[count - 1] == pixels[0] + count - 1;
        T* line = to + (i / blocks * width + first) * channels;
        for (int64_t c = 0; c < channels; ++c, from += x.strides[1]) {
          T values[kTogether]; // first all of them: vectors convert
          if (in_line)
            for (int64_t j = 0; j < kTogether; ++j) values[j] = static_cast<T>(from[pixels[0] + j]) - zero;
          else
            for (int64_t j = 0; j < count; ++j) values[j] = static_cast<T>(from[pixels[j]]) - zero;
          for (int64_t j = 0; j < count; ++j) line[j * channels + c] = values[j];
        }
      }
    });
  });
}

/// What results are that no tap reaches, line by line.
template <class R> void fill(const TensorRef& y, const R* bias) {
  const auto lines = y.sizes.subspan(2, y.sizes.size() - 3);
  const int64_t channels = y.sizes[1], width = y.sizes.back(), count = y.sizes[0] * volume(lines);
  in_pieces(count, static_cast<double>(count) * width * channels, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i;
      R* line = static_cast<R*>(y.data);
      for (size_t d = lines.size(); d-- > 0; rest /= lines[d]) line += rest % lines[d] * y.strides[d + 2];
      line += rest * y.strides[0];
      for (int64_t w = 0; w < width; ++w, line += y.strides.back())
        for (int64_t c = 0; c < channels; ++c) line[c * y.strides[1]] = bias[c];
    }
  });
}

class DirectConv : public ExternKernel {
public:
  DirectConv(const ConvProblem& p, std::span<const OperandInfo> inputs, const OperandInfo& result) : p_(p) {
    const OperandInfo& weights = inputs[1];
    const std::vector<int64_t>& w = weights.sizes;
    const bool known = w[0] >= 0 && w[1] >= 0;
    has_lines_ = is_best_by_lines(p_, inputs, result.dtype, vector_bytes());
    if (const int64_t width = result.sizes.empty() ? -1 : result.sizes.back(); has_lines_ && width >= 0)
      has_lines_ = has_only_lines_ = !is_short(width, size_of(result.dtype));
    has_bytes_ = is_byte(inputs[0].dtype) && is_byte(weights.dtype) && known && !has_lines_ &&
                 !shape_of(p_, w, 1, sizeof(int32_t)).has_small_groups();
    by_taps_ = !has_lines_ && (is_float(result.dtype) || has_bytes_) &&
               (is_best_by_taps(p_, w) ||
                is_less_by_taps(p_, w, inputs[0].sizes, result.sizes, size_of(result.dtype)));
    if (by_taps_) geometry_.parts.push_back(taps_as_phases(std::span(w).subspan(2)));
    with_types(result.dtype, [&]<class T, class R>(T, R) {
      int64_t columns = 0;
      if (known && !has_lines_)
        if (const Shape s = shape_of(p_, w, 1, sizeof(T)); !s.has_small_groups()) columns = s.columns;
      if (!by_taps_) set_geometry(geometry_of(p_, std::span(w).subspan(2), columns, kPanel<T>));
      if (weights.constant) pack_constant<T>(weights);
    });
  }

  std::string description() const override { return "own " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return packed_bytes_; }
  bool reads(size_t input) const override { return input != 1 || !(packed_[0] || packed_[1]); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    Memory memory(nullptr);
    with_types(outputs[0].dtype, [&]<class T, class R>(T, R) {
      const Shape s = shape<T>(inputs[1].sizes, outputs[0].sizes[0], by_lines(outputs[0]));
      if (!s.by_lines) take_image<T>(memory, inputs[0], copied_pixels<T>(inputs[0], outputs[0]));
      take_bias<R>(memory, s);
      take_places(memory, s);
      if (by_taps_)
        memory.take<R>(tap_sums(s, inputs[0].sizes.subspan(2), volume(inputs[1].sizes.subspan(2))));
      if (!packed_[s.by_lines]) take_weights<T>(memory, s);
    });
    return memory.used();
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    with_types(args.outputs[0].dtype, [&]<class T, class R>(T, R) { compute<T, R>(args); });
  }

private:
  void set_geometry(Geometry geometry) {
    geometry_ = std::move(geometry);
    taken_.emplace(geometry_);
    copied_ = taken_->geometry_of_taken(geometry_);
  }

  /// Calls `f` with the type of the products and of their sums.
  template <class F> void with_types(DType result, F&& f) const {
    with_element(result, [&]<class R>(R) {
      if constexpr (std::is_same_v<R, uint32_t>)
        if (has_bytes_) return f(float{}, R{});
      if constexpr (!std::is_same_v<R, std::nullptr_t>) f(R{}, R{});
    });
  }

  bool is_short(int64_t width, int64_t size) const {
    return is_short_line(width, p_.transposed ? p_.strides.back() : 1, size);
  }
  bool by_lines(const TensorRef& y) const {
    return has_only_lines_ || (has_lines_ && !is_short(y.sizes.back(), size_of(y.dtype)));
  }

  template <class T> Shape shape(std::span<const int64_t> weights, int64_t images, bool by_lines) const {
    Shape s = shape_of(p_, weights, images, sizeof(T));
    s.by_taps = by_taps_;
    s.by_lines = by_lines;
    return s;
  }

  template <class T> void pack_constant(const OperandInfo& info) {
    std::shared_ptr<const Tensor> t = widened(info.constant);
    const TensorRef w{const_cast<std::byte*>(t->data), t->dtype, info.sizes, info.strides};
    for (const bool by_lines : {false, true}) {
      if (by_lines ? !has_lines_ : has_only_lines_) continue;
      const Shape s = shape<T>(info.sizes, 1, by_lines);
      const int64_t bytes = weight_elements<T>(s) * static_cast<int64_t>(sizeof(T));
      packed_bytes_ += bytes;
      packed_[by_lines] = allocate_weights(bytes);
      auto* to = static_cast<T*>(packed_[by_lines].get());
      for (const Part& part : geometry_.parts) {
        pack(p_, part, s, w, to);
        to += packed_elements<T>(part, s);
      }
    }
    drop_pages(*info.constant);
  }

  template <class T> int64_t weight_elements(const Shape& s) const {
    int64_t elements = 0;
    for (const Part& part : geometry_.parts) elements += packed_elements<T>(part, s);
    return elements;
  }

  /// Of the image's copy; nothing where it is read in its place.
  template <class T>
  std::optional<TakenPixels::Places> copied_pixels(const TensorRef& x, const TensorRef& y) const {
    if (is_ready<T>(p_, x) || (by_taps_ && has_planes<T>(x))) return {};
    return taken_ ? taken_->places(x.sizes.subspan(2), y.sizes.subspan(2))
                  : TakenPixels::all(x.sizes.subspan(2));
  }
  /// Zeros, and room for a copy where there must be one.
  template <class T>
  static std::pair<T*, T*> take_image(Memory& memory, const TensorRef& x,
                                      const std::optional<TakenPixels::Places>& copied) {
    T* zeros = memory.take<T>(x.sizes[1]);
    return {zeros, copied ? memory.take<T>(volume(copied_sizes(x, *copied))) : nullptr};
  }
  template <class R> static R* take_bias(Memory& memory, const Shape& s) {
    return memory.take<R>(s.out_channels() + s.vectors.lanes);
  }
  static int64_t* take_places(Memory& memory, const Shape& s) {
    return memory.take<int64_t>(s.has_small_groups() ? s.vectors.count() * s.depth * s.vectors.lanes : 0);
  }
  template <class T> T* take_weights(Memory& memory, const Shape& s) const {
    return memory.take<T>(weight_elements<T>(s));
  }
  template <class R> R* make_bias(Memory& memory, const Shape& s, const RunArgs& args) const {
    R* bias = take_bias<R>(memory, s);
    std::fill_n(bias, s.out_channels() + s.vectors.lanes, R(0));
    if (p_.has_bias) {
      const std::vector<R> given = to_dense<R>(args.inputs[2]);
      std::copy_n(given.begin(), s.out_channels(), bias);
    }
    return bias;
  }

  template <class T, class R> void compute(const RunArgs& args) const {
    const TensorRef &x = args.inputs[0], &w = args.inputs[1], &y = args.outputs[0];
    const Shape s = shape<T>(w.sizes, y.sizes[0], by_lines(y));
    Memory memory(args.workspace);
    if constexpr (std::is_same_v<T, R> && !std::is_same_v<T, uint64_t>)
      if (s.by_lines) return compute_lines<T>(args, s, memory);
    std::optional<TakenPixels::Places> taken = copied_pixels<T>(x, y);
    auto [zeros, copy] = take_image<T>(memory, x, taken);
    std::fill_n(zeros, x.sizes[1], T(0));
    Image<T> image{static_cast<const T*>(x.data), {x.strides[0]}, x.sizes, zeros};
    std::vector<int64_t> sizes(x.sizes.begin(), x.sizes.end());
    if (!copy) {
      image.channel_step = is_ready<T>(p_, x) ? 1 : x.strides[1];
      image.strides.insert(image.strides.end(), x.strides.begin() + 2, x.strides.end());
    } else {
      copy_image<T>(x, *taken, zero_point<T>(args.inputs, p_.x_zero), copy);
      const std::vector<int64_t> copied = copied_sizes(x, *taken);
      image.data = copy;
      image.strides.assign(copied.size() - 1, copied[1]);
      for (size_t d = copied.size() - 1; d-- > 1;) image.strides[d - 1] = image.strides[d] * copied[d + 1];
      // [images, spatial...]
      image.index = std::move(taken->index);
      sizes.back() = copied.back();
      image.sizes = sizes;
    }
    R* bias = make_bias<R>(memory, s, args);
    int64_t* places = take_places(memory, s);
    for (int64_t v = 0, i = 0; s.has_small_groups() && v < s.vectors.count(); ++v)
      for (int64_t l = 0; l < s.depth; ++l)
        for (int64_t j = 0; j < s.vectors.lanes; ++j) places[i++] = s.vectors.place(v, l, j);
    R* between =
        by_taps_ ? memory.take<R>(tap_sums(s, x.sizes.subspan(2), volume(w.sizes.subspan(2)))) : nullptr;
    const bool is_packed = packed_[0] != nullptr;
    T* packed = is_packed ? static_cast<T*>(packed_[0].get()) : take_weights<T>(memory, s);
    const Geometry& geometry = copy && taken_ ? copied_ : geometry_;
    if (std::any_of(geometry.parts.begin(), geometry.parts.end(), [](const Part& q) { return q.taps == 0; }))
      fill(y, bias);
    for (const Part& part : geometry.parts) {
      if (part.taps == 0) continue;
      if (!is_packed) pack(p_, part, s, w, packed);
      if constexpr (std::is_floating_point_v<T>)
        if (by_taps_) return run_by_taps(p_, s, w.sizes.subspan(2), image, packed, bias, y, between);
      PartRun<T, R>(geometry, part, s, image, packed, places, bias, y).run();
      packed += packed_elements<T>(part, s);
    }
  }

  template <class T> void compute_lines(const RunArgs& args, const Shape& s, Memory& memory) const {
    const TensorRef &w = args.inputs[1], &y = args.outputs[0];
    const T* bias = make_bias<T>(memory, s, args);
    const bool is_packed = packed_[1] != nullptr;
    T* packed = is_packed ? static_cast<T*>(packed_[1].get()) : take_weights<T>(memory, s);
    for (const Part& part : geometry_.parts) {
      if (!is_packed) pack(p_, part, s, w, packed);
      run_by_lines<T>(
          {geometry_, part, s, args.inputs[0], zero_point<T>(args.inputs, p_.x_zero), packed, bias, y});
      packed += packed_elements<T>(part, s);
    }
  }

  ConvProblem p_;
  Geometry geometry_;
  std::optional<TakenPixels> taken_; ///< nothing: all pixels
  Geometry copied_;                  ///< of an image of those alone
  bool has_bytes_ = false;           ///< products are made in float32, sums in integers
  bool by_taps_ = false;
  /// Some results are best computed line by line, or all: how long lines are may be known at run time only.
  bool has_lines_ = false, has_only_lines_ = false;
  std::shared_ptr<void> packed_[2]; ///< for tiles, for lines
  int64_t packed_bytes_ = 0;
};

} // namespace
} // namespace direct

std::string supports_direct_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs, const Target&) {
  const auto& p = std::get<ConvProblem>(problem);
  if (!p.post_ops.empty()) return "post-operations";
  if (std::string reason = direct::refused_types(inputs, outputs[0].dtype); !reason.empty()) return reason;
  if (const char* reason = direct::refused_geometry(p, std::span(inputs[1].sizes).subspan(2))) return reason;
  if (inputs[1].constant && inputs[1].strides.empty()) return "weights without known strides";
  return {};
}

std::unique_ptr<ExternKernel> make_direct_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs) {
  return std::make_unique<direct::DirectConv>(std::get<ConvProblem>(problem), inputs, outputs[0]);
}

} // namespace tbx::extern_kernels
