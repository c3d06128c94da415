// Exact convolutions of 8-bit integers where the library has only saturating ones.
#include "base/pages.h"
#include "base/weight_memory.h"
#include "extern_kernels/bytes/operands.h"
#include "extern_kernels/bytes/product.h"
#include "extern_kernels/direct/operands.h"
#include "extern_kernels/direct/tap_products.h"
#include "extern_kernels/fit.h"
#include "extern_kernels/stack.h"

namespace tbx::extern_kernels {
namespace bytes {
namespace {

using direct::in_pieces;
using direct::Memory;

/// Pixels between the first tap and the last one: the copy of the image has no more padding than this.
constexpr int64_t kLargestKernel = 4096;

/// A copy of the image with its padding, channels innermost, in which the taps of all results of a row lie at
/// the same distances. Of dimensions in which the kernel is 1 wide it has the pixels that are taken alone.
struct Copy {
  std::vector<int64_t> sizes;       ///< [spatial...]
  std::vector<int64_t> in_step;     ///< from one pixel of the copy to the next in the image
  std::vector<int64_t> result_step; ///< in the copy from one result to the next
};

/// `N`: the numbers of its rows.
template <class N> class ByteConv : public ExternKernel {
public:
  ByteConv(const ConvProblem& p, Form form) : p_(p), form_(form) {}

  /// Whether the form is the fastest one for these weights.
  bool suits(const OperandInfo& w) const {
    if (form_ != Form::bounded_quads) return true;
    if (!is_known(w) || w.constant->numel() == 0) return false;
    const Places places = places_of(w.sizes, {});
    std::vector<int8_t> panel(static_cast<size_t>(panel_bytes(form_, terms(places))));
    pack(tensor_of(w), places, 0, 1, panel.data());
    return has_high_bounds(panel.data(), terms(places));
  }

  /// Packs weights that are known, once.
  void keep(const OperandInfo& w) {
    if (!is_known(w)) return;
    const TensorRef weights = tensor_of(w);
    const Places places = places_of(w.sizes, {});
    packed_bytes_ = bytes_of(w.sizes, places);
    packed_ = allocate_weights(packed_bytes_);
    pack(weights, places, static_cast<int8_t*>(packed_.get()));
    drop_pages(*w.constant);
  }

  std::string description() const override { return "own exact bytes, " + to_string(Problem(p_)); }
  int64_t packed_bytes() const override { return packed_bytes_; }
  bool reads(size_t input) const override { return input != 1 || !packed_; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    Memory memory(nullptr);
    take(memory, inputs, copy_of(inputs[1].sizes, outputs[0].sizes));
    return memory.used();
  }

  void run(const RunArgs& args) const override {
    const TensorRef &x = args.inputs[0], &w = args.inputs[1], &y = args.outputs[0];
    if (y.numel() == 0) return;
    Memory memory(args.workspace);
    const Copy copy = copy_of(w.sizes, y.sizes);
    const auto [image, unpacked] = take(memory, args.inputs, copy);
    const auto zero = direct::zero_point<int32_t>(args.inputs, p_.x_zero);
    if (image) copy_image(x, copy, zero, image);
    const int64_t channels = x.sizes[1];
    const std::vector<int64_t> steps = steps_of(copy, channels);
    const Places places = places_of(w.sizes, steps);
    if (unpacked) pack(w, places, unpacked);

    Product p;
    p.sizes = {p_.group, y.sizes[0]};
    p.sizes.insert(p.sizes.end(), y.sizes.begin() + 2, y.sizes.end());
    p.outer = 1;
    p.form = form_;
    p.terms = terms(places);
    p.columns = y.sizes[1] / p_.group;
    p.row_zero = zero_number<N>(x.dtype, zero);
    const size_t rank = copy.sizes.size();
    if (image) {
      p.rows = image;
      p.row_steps = {w.sizes[1], known_numel(copy.sizes) * channels};
      for (size_t d = 0; d < rank; ++d) p.row_steps.push_back(copy.result_step[d] * steps[d]);
    } else {
      p.bytes = ByteRows{x.data, x.dtype, zero, w.sizes[1]};
      p.row_steps = {w.sizes[1], x.strides[0]};
      for (size_t d = 0; d < rank; ++d) p.row_steps.push_back(p_.strides[d] * x.strides[d + 2]);
    }
    p.panels = unpacked ? unpacked : static_cast<const int8_t*>(packed_.get());
    p.panel_steps = {panels_of(p.columns) * panel_bytes(form_, p.terms)};
    p.unsigned_weights = w.dtype == DType::u8;
    p.result = walk_of(y, p.columns);
    for (const PostOp& op : p_.post_ops)
      if (op.operand >= 0) p.operands.push_back(walk_of(args.inputs[op.operand], p.columns));
    p.post_ops = &p_.post_ops;
    bytes::run(p);
  }

private:
  /// Where the terms of a result lie, and which weights belong to them.
  struct Places {
    std::vector<int64_t> starts; ///< in elements from the first
    int64_t depth = 0;           ///< terms at each of them
    bool in_line = false;        ///< the taps of the last dimension follow each other like channels
  };

  Terms terms(const Places& places) const {
    const int64_t group = group_of(form_);
    return {places.starts.data(), static_cast<int64_t>(places.starts.size()), ceil_div(places.depth, group)};
  }

  /// Elements between neighbours of each dimension of the copy.
  static std::vector<int64_t> steps_of(const Copy& copy, int64_t channels) {
    std::vector<int64_t> steps(copy.sizes.size());
    int64_t step = channels;
    for (size_t d = steps.size(); d-- > 0; step *= copy.sizes[d]) steps[d] = step;
    return steps;
  }

  /// Without `steps` only how many places there are, and how deep, is told.
  Places places_of(std::span<const int64_t> weights, std::span<const int64_t> steps) const {
    Places places;
    const std::span<const int64_t> kernel = weights.subspan(2);
    places.in_line = p_.group == 1 && p_.dilations.back() == 1;
    places.depth = weights[1] * (places.in_line ? kernel.back() : 1);
    const size_t dims = kernel.size() - (places.in_line ? 1 : 0);
    std::vector<int64_t> tap_steps(dims, 0);
    for (size_t d = 0; d < dims && !steps.empty(); ++d) tap_steps[d] = p_.dilations[d] * steps[d];
    const int64_t count = known_numel(kernel.first(dims));
    for (int64_t t = 0; t < count; ++t) places.starts.push_back(place_of(t, kernel.first(dims), tap_steps));
    return places;
  }

  Copy copy_of(std::span<const int64_t> weights, std::span<const int64_t> result) const {
    Copy copy;
    for (size_t d = 0; d < p_.strides.size(); ++d) {
      const int64_t kernel = weights[d + 2], results = result[d + 2];
      copy.sizes.push_back(kernel == 1 ? results
                                       : (results - 1) * p_.strides[d] + (kernel - 1) * p_.dilations[d] + 1);
      copy.in_step.push_back(kernel == 1 ? p_.strides[d] : 1);
      copy.result_step.push_back(kernel == 1 ? 1 : p_.strides[d]);
    }
    return copy;
  }

  /// Each result is of one pixel, whose channels lie side by side: it is read where it is.
  bool takes_pixels(const TensorRef& x, std::span<const int64_t> weights) const {
    for (size_t d = 0; d < p_.strides.size(); ++d)
      if (weights[d + 2] != 1 || p_.pads_begin[d] != 0 || p_.pads_end[d] != 0) return false;
    return x.strides[1] == 1 || x.sizes[1] == 1;
  }

  /// The image's copy, where one is made, and room for panels where weights are not packed yet.
  std::pair<N*, int8_t*> take(Memory& memory, std::span<const TensorRef> in, const Copy& copy) const {
    const int64_t pixels = times(in[0].sizes[0], known_numel(copy.sizes)),
                  count = times(pixels, in[0].sizes[1]);
    auto* image =
        takes_pixels(in[0], in[1].sizes) ? nullptr : memory.take<N>(count < 0 ? -1 : count + kSlack);
    return {image,
            packed_ ? nullptr : memory.take<int8_t>(bytes_of(in[1].sizes, places_of(in[1].sizes, {})))};
  }

  int64_t bytes_of(std::span<const int64_t> weights, const Places& places) const {
    return p_.group * panels_of(weights[0] / p_.group) * panel_bytes(form_, terms(places));
  }

  /// [group, panel]
  void pack(const TensorRef& w, const Places& places, int8_t* to) const {
    const int64_t panels = p_.group * panels_of(w.sizes[0] / p_.group);
    in_pieces(panels, static_cast<double>(w.numel()),
              [&](int64_t begin, int64_t end) { pack(w, places, begin, end, to); });
  }

  /// Some of the panels; `to` is the place of the first of all.
  void pack(const TensorRef& w, const Places& places, int64_t begin, int64_t end, int8_t* to) const {
    const int64_t columns = w.sizes[0] / p_.group, panels = panels_of(columns), depth = w.sizes[1];
    const Terms terms = this->terms(places);
    const std::span<const int64_t> kernel = w.sizes.subspan(2);
    const size_t dims = kernel.size() - (places.in_line ? 1 : 0);
    WeightSteps steps{w.strides[0], {}, {}};
    for (int64_t t = 0; t < terms.count; ++t)
      steps.places.push_back(place_of(t, kernel.first(dims), w.strides.subspan(2)));
    for (int64_t t = 0; t < places.depth; ++t)
      steps.terms.push_back((places.in_line ? t / depth * w.strides.back() : 0) + t % depth * w.strides[1]);
    for (int64_t i = begin; i < end; ++i)
      pack_panel(form_, i % panels, columns,
                 static_cast<const int8_t*>(w.data) + i / panels * columns * w.strides[0], w.dtype, steps,
                 to + i * panel_bytes(form_, terms));
  }

  /// Line by line; pixels outside of the image are what the zero point is.
  void copy_image(const TensorRef& x, const Copy& copy, int32_t zero, N* to) const {
    const auto outside = static_cast<N>(zero_number<N>(x.dtype, zero));
    const size_t rank = copy.sizes.size();
    const int64_t channels = x.sizes[1], width = copy.sizes.back(),
                  lines = x.sizes[0] * known_numel(std::span(copy.sizes).first(rank - 1));
    // Results of the last dimension that lie in the image.
    const int64_t step = copy.in_step.back(), size = x.sizes.back(), begin = p_.pads_begin.back();
    const int64_t first = std::min(width, (begin + step - 1) / step),
                  end = std::clamp((begin + size + step - 1) / step, first, width);
    std::fill_n(to + lines * width * channels, kSlack, outside);
    in_pieces(lines, static_cast<double>(lines) * width * channels, [&](int64_t from, int64_t until) {
      for (int64_t i = from; i < until; ++i) {
        int64_t rest = i, at = 0;
        bool inside = true;
        for (size_t d = rank - 1; d-- > 0; rest /= copy.sizes[d]) {
          const int64_t place = rest % copy.sizes[d] * copy.in_step[d] - p_.pads_begin[d];
          inside &= place >= 0 && place < x.sizes[d + 2];
          at += place * x.strides[d + 2];
        }
        N* line = to + i * width * channels;
        if (!inside || first == end) {
          std::fill_n(line, width * channels, outside);
          continue;
        }
        std::fill_n(line, first * channels, outside);
        std::fill_n(line + end * channels, (width - end) * channels, outside);
        at += rest * x.strides[0] + (first * step - begin) * x.strides.back();
        copy_pixels(x, at, step * x.strides.back(), end - first, zero, line + first * channels);
      }
    });
  }

  /// Where the memory of bytes ends.
  static const int8_t* end_of(const TensorRef& x) {
    int64_t last = 0;
    for (size_t d = 0; d < x.sizes.size(); ++d) last += (x.sizes[d] - 1) * x.strides[d];
    return static_cast<const int8_t*>(x.data) + last + 1;
  }

  /// `count` pixels that are `step` elements apart.
  static void copy_pixels(const TensorRef& x, int64_t at, int64_t step, int64_t count, int32_t zero, N* to) {
    const auto* from = static_cast<const int8_t*>(x.data) + at;
    const int64_t channels = x.sizes[1];
    const bool is_last = x.strides[1] == 1 || channels == 1;
    if (is_last && step == channels) {
      to_numbers(from, x.dtype, 1, count * channels, zero, to);
    } else if (is_last) {
      for (int64_t j = 0; j < count; ++j)
        to_numbers(from + j * step, x.dtype, 1, channels, zero, to + j * channels);
    } else {
      constexpr int64_t kTogether = 64; // pixels whose lines stay in the cache
      N values[kTogether];
      for (int64_t first = 0; first < count; first += kTogether) {
        const int64_t some = std::min(kTogether, count - first);
        const int64_t turned = step == 1 ? turn(from + first, x.dtype, x.strides[1], some, channels, zero,
                                                end_of(x), to + first * channels)
                                         : 0;
        for (int64_t c = turned; c < channels; ++c) {
          to_numbers(from + c * x.strides[1] + first * step, x.dtype, step, some, zero, values);
          for (int64_t j = 0; j < some; ++j) to[(first + j) * channels + c] = values[j];
        }
      }
    }
  }

  /// Its rows are [group, image, spatial...].
  static Walk walk_of(const TensorRef& t, int64_t columns) {
    auto step = [&](size_t d) { return t.sizes[d] == 1 ? 0 : t.strides[d]; };
    Walk w{t.data, t.dtype, step(1), {columns * step(1), step(0)}};
    for (size_t d = 2; d < t.sizes.size(); ++d) w.steps.push_back(step(d));
    return w;
  }

  ConvProblem p_;
  Form form_;
  std::shared_ptr<void> packed_;
  int64_t packed_bytes_ = 0;
};

} // namespace
} // namespace bytes

std::string supports_byte_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                               std::span<const OperandInfo> outputs, const Target& target) {
  const auto& p = std::get<ConvProblem>(problem);
  const OperandInfo& w = inputs[1];
  if (!is_byte(inputs[0].dtype) || !is_byte(w.dtype)) return "operands that are no bytes";
  if (target.library_isa < Isa::avx2) return "a CPU without AVX2";
  if (p.has_bias || p.transposed) return "a bias or a transposed convolution of integers";
  if (p.group > 1 && (w.sizes[0] < 0 || w.sizes[0] / p.group < bytes::kLeastGroup))
    return "groups of few results, which leave most of a vector empty";
  // Which does no post-operations: what has some is one call here.
  if (p.post_ops.empty() && direct::is_best_by_taps(p, w.sizes)) return "few results: taps first, sums after";
  if (w.constant && w.strides.empty()) return "weights without known strides";
  for (size_t d = 0; d < p.strides.size(); ++d) {
    if (p.pads_begin[d] < 0 || p.pads_end[d] < 0) return "negative padding";
    const int64_t taps = w.sizes[d + 2];
    int64_t width;
    if (taps < 0 || __builtin_mul_overflow(taps - 1, p.dilations[d], &width) ||
        width >= bytes::kLargestKernel)
      return "a kernel of unknown or great width";
    if (taps > 1 && std::max(p.pads_begin[d], p.pads_end[d]) > width) return "padding beyond the kernel";
  }
  return bytes::Epilogue::refusal(p.post_ops, inputs, outputs[0].dtype);
}

std::unique_ptr<ExternKernel> make_byte_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                             std::span<const OperandInfo>) {
  // Quads of unsigned weights want the sums of rows, which several places of an image make.
  return bytes::fastest<bytes::ByteConv>(std::get<ConvProblem>(problem), inputs[1],
                                         inputs[1].dtype == DType::i8);
}

} // namespace tbx::extern_kernels
