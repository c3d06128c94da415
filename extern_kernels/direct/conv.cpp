// Convolutions of every rank, group and stride without a library: f32 where the library has only a plain
// loop, f64 and integers. Each tile of results is a product of rows of the input, found through pointers,
// with packed weights; of small groups a vector has the results of several.
#include <tbb/blocked_range.h>

#include <algorithm>

#include "base/memory.h"
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
  if (s.by_taps) return part.phases * s.columns * s.depth;
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
    in_pieces(part.phases * s.columns, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t l = 0; l < s.depth; ++l)
          to[i * s.depth + l] = value(i / s.columns, 0, 0, l, i % s.columns);
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
  with_storage(w.dtype, [&]<class S>(S) { pack<T, S>(p, part, s, w, to); });
}

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

/// What results are that no tap reaches, in the order of memory.
template <class R> void fill(const TensorRef& y, const R* bias) {
  const int64_t channels = y.sizes[1], pixels = y.sizes[0] * volume(y.sizes.subspan(2));
  in_pieces(pixels, static_cast<double>(pixels) * channels, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t rest = i;
      R* to = static_cast<R*>(y.data);
      for (size_t d = y.sizes.size(); d-- > 2; rest /= y.sizes[d]) to += rest % y.sizes[d] * y.strides[d];
      to += rest * y.strides[0];
      if (y.strides[1] == 1)
        std::copy_n(bias, channels, to);
      else
        for (int64_t c = 0; c < channels; ++c) to[c * y.strides[1]] = bias[c];
    }
  });
}

class DirectConv : public ExternKernel {
public:
  DirectConv(const ConvProblem& p, std::span<const OperandInfo> inputs, DType result) : p_(p) {
    const OperandInfo& weights = inputs[1];
    const std::vector<int64_t>& w = weights.sizes;
    const bool known = w[0] >= 0 && w[1] >= 0;
    has_bytes_ = is_byte(inputs[0].dtype) && is_byte(weights.dtype) && known &&
                 !shape_of(p_, w, 1, sizeof(int32_t)).has_small_groups();
    by_taps_ = is_float(result) && is_best_by_taps(p_, w);
    if (by_taps_) geometry_.parts.push_back(taps_as_phases(std::span(w).subspan(2)));
    with_types(result, [&]<class T, class R>(T, R) {
      int64_t columns = 0;
      if (known)
        if (const Shape s = shape_of(p_, w, 1, sizeof(T)); !s.has_small_groups()) columns = s.columns;
      if (!by_taps_) geometry_ = geometry_of(p_, std::span(w).subspan(2), columns, kPanel<T>);
      if (weights.constant) pack_constant<T>(weights);
    });
  }

  std::string description() const override { return "own " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return packed_bytes_; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    Memory memory(nullptr);
    with_types(outputs[0].dtype, [&]<class T, class R>(T, R) {
      const Shape s = shape<T>(inputs[1].sizes, outputs[0].sizes[0]);
      take_image<T>(memory, inputs[0]);
      take_bias<R>(memory, s);
      take_places(memory, s);
      if (by_taps_)
        memory.take<T>(tap_sums(s, inputs[0].sizes.subspan(2), volume(inputs[1].sizes.subspan(2))));
      if (!packed_) take_weights<T>(memory, s);
    });
    return memory.used();
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    with_types(args.outputs[0].dtype, [&]<class T, class R>(T, R) { compute<T, R>(args); });
  }

private:
  /// Calls `f` with the type of the products and of their sums.
  template <class F> void with_types(DType result, F&& f) const {
    with_element(result, [&]<class R>(R) {
      if constexpr (std::is_same_v<R, uint32_t>)
        if (has_bytes_) return f(float{}, R{});
      if constexpr (!std::is_same_v<R, std::nullptr_t>) f(R{}, R{});
    });
  }

  template <class T> Shape shape(std::span<const int64_t> weights, int64_t images) const {
    Shape s = shape_of(p_, weights, images, sizeof(T));
    s.by_taps = by_taps_;
    return s;
  }

  template <class T> void pack_constant(const OperandInfo& info) {
    const Shape s = shape<T>(info.sizes, 1);
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
  template <class R> static R* take_bias(Memory& memory, const Shape& s) {
    return memory.take<R>(s.out_channels() + s.vectors.lanes);
  }
  static int64_t* take_places(Memory& memory, const Shape& s) {
    return memory.take<int64_t>(s.has_small_groups() ? s.vectors.count() * s.depth * s.vectors.lanes : 0);
  }
  template <class T> T* take_weights(Memory& memory, const Shape& s) const {
    int64_t elements = 0;
    for (const Part& part : geometry_.parts) elements += packed_elements<T>(part, s);
    return memory.take<T>(elements);
  }

  template <class T, class R> void compute(const RunArgs& args) const {
    const TensorRef &x = args.inputs[0], &w = args.inputs[1], &y = args.outputs[0];
    const Shape s = shape<T>(w.sizes, y.sizes[0]);
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
    R* bias = take_bias<R>(memory, s);
    std::fill_n(bias, s.out_channels() + s.vectors.lanes, R(0));
    if (p_.has_bias) {
      const std::vector<R> given = to_dense<R>(args.inputs[2]);
      std::copy_n(given.begin(), s.out_channels(), bias);
    }
    int64_t* places = take_places(memory, s);
    for (int64_t v = 0, i = 0; s.has_small_groups() && v < s.vectors.count(); ++v)
      for (int64_t l = 0; l < s.depth; ++l)
        for (int64_t j = 0; j < s.vectors.lanes; ++j) places[i++] = s.vectors.place(v, l, j);
    T* between =
        by_taps_ ? memory.take<T>(tap_sums(s, x.sizes.subspan(2), volume(w.sizes.subspan(2)))) : nullptr;
    T* packed = packed_ ? static_cast<T*>(packed_.get()) : take_weights<T>(memory, s);
    if (std::any_of(geometry_.parts.begin(), geometry_.parts.end(),
                    [](const Part& q) { return q.taps == 0; }))
      fill(y, bias);
    for (const Part& part : geometry_.parts) {
      if (part.taps == 0) continue;
      if (!packed_) pack(p_, part, s, w, packed);
      if constexpr (std::is_floating_point_v<R> && std::is_same_v<T, R>)
        if (by_taps_) return run_by_taps(p_, s, w.sizes.subspan(2), image, packed, bias, y, between);
      PartRun<T, R>(geometry_, part, s, image, packed, places, bias, y).run();
      packed += packed_elements<T>(part, s);
    }
  }

  ConvProblem p_;
  Geometry geometry_;
  bool has_bytes_ = false; ///< products are made in float32, sums in integers
  bool by_taps_ = false;
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
  return std::make_unique<direct::DirectConv>(std::get<ConvProblem>(problem), inputs, outputs[0].dtype);
}

} // namespace tbx::extern_kernels
