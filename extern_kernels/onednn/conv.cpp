// Convolutions by oneDNN: activations as they lie (channels last), weights packed once.
#include <fmt/format.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <iterator>
#include <list>
#include <mutex>

#include "base/error.h"
#include "base/strides.h"
#include "extern_kernels/direct/groups.h"
#include "extern_kernels/direct/tap_products.h"
#include "extern_kernels/library_kernel.h"
#include "extern_kernels/onednn/common.h"
#include "extern_kernels/onednn/guess.h"
#include "extern_kernels/onednn/product.h"
#include "extern_kernels/onednn/scaled_sums.h"
#include "extern_kernels/onednn/tile_conv.h"
#include "extern_kernels/threads.h"
#include "extern_kernels/widen.h"

namespace tbx::extern_kernels {

std::string supports_direct_conv(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                                 const Target&);
std::unique_ptr<ExternKernel> make_direct_conv(const Problem&, std::span<const OperandInfo>,
                                               std::span<const OperandInfo>);

namespace {

using dnnl::memory;
using namespace onednn;

/// The library counts the pixels of an image, and of all images of a batch, in 32 bits. It tries one length
/// of the parts of a line after the other, which takes it seconds for a line as long as this.
constexpr int64_t kMostPixels = int64_t{1} << 30, kMostOfBatch = 2 * kMostPixels - 1,
                  kLongLine = int64_t{1} << 21;
constexpr const char* kUncountable = "more than 2^30 pixels, or 2^31 in a batch";

bool has_countable_pixels(const TensorRef& image) {
  int64_t most = kMostPixels;
  for (int64_t n : image.sizes.subspan(2)) most /= std::max<int64_t>(n, 1);
  if (most == 0) return false;
  const int64_t pixels = checked_numel(image.sizes.subspan(2));
  return image.sizes[0] <= kMostOfBatch / std::max<int64_t>(pixels, 1);
}

/// Why the library is not asked for images of these sizes; null: it is.
const char* beyond_reach(const TensorRef& image, const TensorRef& result) {
  if (!has_countable_pixels(image) || !has_countable_pixels(result)) return kUncountable;
  if (std::max(image.sizes.back(), result.sizes.back()) > kLongLine) return "a line of more than 2^21 pixels";
  return nullptr;
}

/// Images: where sizes of 1 leave it open how they lie, channels are last. oneDNN has plain loops only for
/// orders that differ between source and destination.
memory::desc describe_image(const TensorRef& t) {
  require_countable(t.sizes);
  if (!has_countable_pixels(t)) throw dnnl::error(dnnl_unimplemented, kUncountable);
  if (!is_channels_last(t.sizes, t.strides)) return describe(t.sizes, t.strides, t.dtype);
  return memory::desc({t.sizes.begin(), t.sizes.end()}, data_type(t.dtype), channels_last_strides(t.sizes));
}

/// Whether the window of some result has nothing of the image in a dimension, but padding alone. Transposed
/// convolutions with strides are not looked at: they are computed by other kernels.
bool has_empty_window(const ConvProblem& p, const TensorRef& image, const TensorRef& weights,
                      const TensorRef& result) {
  if (p.transposed && std::any_of(p.strides.begin(), p.strides.end(), [](int64_t s) { return s != 1; }))
    return false;
  for (size_t d = 0; d < p.strides.size(); ++d) {
    const int64_t extent = image.sizes[d + 2], taps = weights.sizes[d + 2], step = p.dilations[d];
    // Transposed: the same with the kernel turned round.
    const int64_t before = p.transposed ? (taps - 1) * step - p.pads_begin[d] : p.pads_begin[d];
    for (int64_t o = 0; o < result.sizes[d + 2]; ++o) {
      const int64_t first = o * p.strides[d] - before;
      const int64_t tap = first < 0 ? (-first + step - 1) / step : 0; // the first one not before the image
      if (tap >= taps || first + tap * step >= extent) return true;
    }
  }
  return false;
}

/// One channel in and one out, for each group.
bool is_depthwise(const ConvProblem& p, std::span<const int64_t> weights) {
  return p.group > 1 &&
         (p.transposed ? weights[0] == p.group && weights[1] == 1 : weights[1] == 1 && weights[0] == p.group);
}

/// Of a line of results: channels that the library computes together, pixels of a part that keeps a kernel
/// busy, and the most parts.
constexpr int64_t kColumns = 64, kPart = 256, kMostParts = 256;

class OneDnnConv : public LibraryKernel {
public:
  /// `for_question`: nothing is packed.
  OneDnnConv(const ConvProblem& problem, std::span<const OperandInfo> inputs,
             std::span<const OperandInfo> outputs, bool for_question = false)
      : p_(problem), large_sums_(has_large_sums(problem, inputs[1])), inputs_(inputs.begin(), inputs.end()),
        outputs_(outputs.begin(), outputs.end()) {
    const OperandInfo& weights = inputs[1];
    if (weights.constant && !for_question) {
      packed_ =
          std::make_unique<PackedWeights>(weight_desc(weights.sizes, weights.strides, weights.dtype),
                                          weights.constant, p_.x_zero >= 0 && inputs[0].dtype == DType::u8);
      inputs_[1].constant.reset(); // who packs them gives them up
    }
  }

  std::string description() const override { return "oneDNN " + extern_kernels::to_string(Problem(p_)); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (!is_empty(outputs[0])) prepared(inputs, outputs); // ahead of the run; calls bring memory of their own
    return 0;
  }

  void run(const RunArgs& args) const override {
    if (is_empty(args.outputs[0])) return;
    guarded("convolution", [&] { prepared(args.inputs, args.outputs)->execute(args); });
  }

  int64_t packed_bytes() const override {
    std::lock_guard lock(mutex_);
    return (packed_ ? packed_->bytes() : 0) + (own_ ? own_->packed_bytes() : 0);
  }
  bool reads(size_t input) const override { return input != 1 || !packed_; }
  std::vector<std::string> implementations() const override { return cache_.implementations(); }

  /// Why the library does not do all of the work inside of a fast kernel; empty: it does. `or_beside`: bias
  /// and post-operations may come after the product.
  std::string slow(std::span<const TensorRef> in, std::span<const TensorRef> out, bool or_beside) const {
    if (const char* reason = beyond_reach(in[0], out[0])) return reason;
    if (out[0].dtype == DType::f32 && !is_byte(in[0].dtype) && direct::is_best_by_taps(p_, in[1].sizes))
      return "few results: its vectors would be mostly empty";
    auto good = [&](const Implementation& i) {
      return !i.name.empty() && !i.is_reference && !has_idle_lanes(i.name, in[1].sizes);
    };
    const Implementation whole = implementation(in, out, {.summed = -1, .with_work = true});
    if (good(whole)) return {};
    if (const int summed = operand_to_sum(in, out);
        summed >= 0 && good(implementation(in, out, {.summed = summed, .with_work = true})))
      return {};
    const bool has_work = p_.has_bias || !p_.post_ops.empty();
    if (or_beside && has_work && good(implementation(in, out, {.summed = -1, .with_work = false}))) return {};
    if (whole.name.empty()) return "all its implementations are refused";
    return whole.name +
           (whole.is_reference ? " is a plain loop" : " computes small groups one after the other");
  }

private:
  static bool is_empty(const TensorRef& t) { return t.numel() == 0; }

  static bool has_large_sums(const ConvProblem& p, const OperandInfo& weights) {
    if (p.x_zero < 0 || weights.dtype != DType::i8) return false;
    const auto each = std::span(weights.sizes).subspan(1);
    const bool known = std::all_of(each.begin(), each.end(), [](int64_t n) { return n >= 0; });
    return large_sums_on_tiles(weights, 0, known ? checked_numel(each) : -1, false);
  }

  /// Groups of which a vector holds several, and an implementation that takes them one by one: as products,
  /// or in blocks of 16 channels. The latter is as good with as few as two groups in a vector.
  bool has_idle_lanes(std::string_view name, std::span<const int64_t> weights) const {
    if (p_.group == 1 || name.find("dw") != std::string_view::npos) return false;
    // Of bytes it has one kernel for everything, which knows one channel for each group.
    if (name.starts_with("jit_int8") && is_depthwise(p_, weights)) return false;
    const int64_t depth = p_.transposed ? weights[0] / p_.group : weights[1];
    const int64_t columns = p_.transposed ? weights[1] : weights[0] / p_.group;
    const direct::GroupVectors v = direct::group_vectors(p_.group, depth, columns, sizeof(float));
    return v.lanes > 0 && (v.in_each > 2 || name.find("gemm") != std::string_view::npos);
  }

  /// Grouped weights get a leading dimension for the group; transposed ones have input channels first in
  /// ONNX.
  memory::desc weight_desc(std::span<const int64_t> sizes, std::span<const int64_t> strides,
                           DType type) const {
    require_countable(sizes);
    double count = 1;
    for (int64_t n : sizes) count *= static_cast<double>(n);
    if (count >= double{1LL << 31}) throw dnnl::error(dnnl_unimplemented, "2^31 weights or more");
    std::vector<int64_t> s(sizes.begin(), sizes.end()), t(strides.begin(), strides.end());
    int64_t g = p_.group;
    if (g > 1) {
      s.insert(s.begin(), g);
      s[1] /= g;
      t.insert(t.begin(), t[0] * s[1]);
    }
    if (p_.transposed) {
      size_t first = g > 1 ? 1 : 0;
      std::swap(s[first], s[first + 1]);
      std::swap(t[first], t[first + 1]);
    }
    return memory::desc(s, data_type(type), t);
  }

  std::shared_ptr<Prepared> prepared(std::span<const TensorRef> inputs,
                                     std::span<const TensorRef> outputs) const {
    return cache_.get(inputs, outputs, [&] { return make(inputs, outputs); });
  }

  /// In order of preference: everything in our tiles of bytes; everything in one call; the added operand
  /// copied into the result first (oneDNN has fast kernels of few channels for a sum with what lies there,
  /// not for an operand); images of bytes copied to have channels last; the convolution alone, bias and
  /// post-operations beside it; our own kernel, post-operations beside it, which comes first where the
  /// library is not asked. Questions that come before sizes or threads are known may have had another answer.
  /// A plain loop of the library only where nothing else is left.
  std::shared_ptr<Prepared> make(std::span<const TensorRef> in, std::span<const TensorRef> out) const {
    return guarded("convolution", [&] {
      const bool has_work = p_.has_bias || !p_.post_ops.empty();
      const bool floats = out[0].dtype == DType::f32 && in[0].dtype == DType::f32;
      if (const char* reason = floats ? beyond_reach(in[0], out[0]) : nullptr)
        if (auto own = with_own_product(in, out, reason)) return own;
      if (auto tiles = with_tiles(in, out)) return tiles;
      auto whole = call(in, out, {.summed = -1, .with_work = true});
      if (is_fast(*whole.primitive)) return finish(in, {std::move(whole)}, 0);
      if (const int summed = operand_to_sum(in, out); summed >= 0) {
        auto with_sum = call(in, out, {.summed = summed, .with_work = true});
        if (is_fast(*with_sum.primitive))
          return finish(in,
                        {copy_stage(summed, describe(in[summed].sizes, in[summed].strides, in[summed].dtype),
                                    describe_image(out[0])),
                         std::move(with_sum)},
                        1);
      }
      if (is_byte(in[0].dtype))
        if (auto turned = with_images_turned(in, out, whole.primitive->implementation.text())) return turned;
      if (has_work && floats) {
        auto alone = call(in, out, {.summed = -1, .with_work = false});
        auto beside =
            stages_beside(describe_image(out[0]), p_.has_bias ? std::optional<int>(2) : std::nullopt,
                          p_.post_ops, [&](int k) { return after(in[k], out[0]); });
        if (is_fast(*alone.primitive) && beside) {
          std::vector<Stage> stages{std::move(alone)};
          std::move(beside->begin(), beside->end(), std::back_inserter(stages));
          return finish(in, std::move(stages), 0, whole.primitive->implementation.text());
        }
      }
      if (floats)
        if (auto own = with_own_product(in, out, whole.primitive->implementation.text())) return own;
      if (whole.primitive->implementation.name.empty())
        throw_backend_error("oneDNN has no implementation that is known to be right: {}",
                            whole.primitive->implementation.text());
      return finish(in, {std::move(whole)}, 0);
    });
  }

  /// Everything in one call on copies of the images with channels last, the only order in which the library
  /// has fast kernels of bytes. Null where none lies otherwise, or that does not help.
  std::shared_ptr<Prepared> with_images_turned(std::span<const TensorRef> in, std::span<const TensorRef> out,
                                               std::string passed_over) const {
    std::vector<TensorRef> inputs(in.begin(), in.end()), outputs(out.begin(), out.end());
    std::list<std::vector<int64_t>> strides; // which those refer to
    std::vector<int64_t> buffers;
    /// The number of the buffer for its copy, -1: it needs none.
    auto turn = [&](TensorRef& t) {
      if (t.sizes.size() != out[0].sizes.size() || is_channels_last(t.sizes, t.strides)) return -1;
      t.strides = strides.emplace_back(channels_last_strides(t.sizes));
      buffers.push_back(static_cast<int64_t>(describe_image(t).get_size()));
      return static_cast<int>(buffers.size()) - 1;
    };
    std::vector<int> copies(in.size(), -1);
    for (size_t k = 0; k < in.size(); ++k)
      if (k != 1) copies[k] = turn(inputs[k]);
    const int result = turn(outputs[0]);
    if (buffers.empty()) return nullptr;
    Stage product = call(inputs, outputs, {.summed = -1, .with_work = true});
    if (!is_fast(*product.primitive)) return nullptr;
    for (Argument& a : product.arguments)
      if (const int own = a.output >= 0 ? result : a.input >= 0 ? copies[a.input] : -1; own >= 0)
        a = {a.id, a.desc, -1, -1, nullptr, own};
    std::vector<Stage> stages;
    for (size_t k = 0; k < in.size(); ++k)
      if (copies[k] >= 0)
        stages.push_back(
            copy_stage(static_cast<int>(k), describe_image(in[k]), describe_image(inputs[k]), copies[k]));
    const size_t at = stages.size();
    stages.push_back(std::move(product));
    if (result >= 0)
      stages.push_back(copy_back_stage(result, describe_image(outputs[0]), describe_image(out[0])));
    return finish(in, std::move(stages), at, std::move(passed_over), std::move(buffers));
  }

  /// Everything in our own tiles of bytes; null where they do not take the convolution.
  std::shared_ptr<Prepared> with_tiles(std::span<const TensorRef> in, std::span<const TensorRef> out) const {
    if (!packed_ || !is_byte(in[0].dtype)) return nullptr;
    const ScaledSums sums = scaled_sums(p_.post_ops, in, out[0], 1);
    if (!TileConv::fits(p_, sums, in, out[0])) return nullptr;
    auto own = std::make_shared<TileConv>(p_, sums, packed_->get(TileConv::layout(in[1].sizes)));
    return std::make_shared<Prepared>(std::vector<Stage>{}, std::vector<int64_t>{}, std::vector<memory>{}, "",
                                      std::move(own));
  }

  /// Our kernel, post-operations beside it; null where it does not take the convolution.
  std::shared_ptr<Prepared> with_own_product(std::span<const TensorRef> in, std::span<const TensorRef> out,
                                             std::string passed_over) const {
    auto own = own_product();
    if (!own) return nullptr;
    std::optional<std::vector<Stage>> beside{std::in_place};
    if (!p_.post_ops.empty())
      beside = stages_beside(describe_image(out[0]), std::nullopt, p_.post_ops,
                             [&](int k) { return after(in[k], out[0]); });
    if (!beside) return nullptr;
    return std::make_shared<Prepared>(std::move(*beside), std::vector<int64_t>{}, std::vector<memory>{},
                                      std::move(passed_over), std::move(own));
  }

  /// Our kernel for the convolution with its bias; null where it does not take it.
  std::shared_ptr<const ExternKernel> own_product() const {
    ConvProblem product = p_;
    product.post_ops.clear();
    std::vector<OperandInfo> in(inputs_.begin(),
                                inputs_.begin() + std::min<std::ptrdiff_t>(std::ssize(inputs_), 3));
    if (packed_) in[1].constant = packed_->original();
    if (!supports_direct_conv(product, in, outputs_, Target()).empty()) return nullptr;
    std::lock_guard lock(mutex_);
    if (!own_) own_ = make_direct_conv(product, in, outputs_);
    return own_;
  }

  /// An operand of what comes after the convolution, as a tensor of the result's rank.
  memory::desc after(const TensorRef& t, const TensorRef& out) const {
    if (t.sizes.size() == out.sizes.size()) return describe_image(t);
    memory::dims sizes(out.sizes.size(), 1), strides(out.sizes.size(), t.sizes[0]); // the bias
    sizes[1] = t.sizes[0];
    strides[1] = 1;
    return memory::desc(sizes, memory::data_type::f32, strides);
  }

  /// The only addition among the post-operations, of an operand like the result; -1: there is none such.
  int operand_to_sum(std::span<const TensorRef> in, std::span<const TensorRef> out) const {
    int found = -1;
    for (const PostOp& op : p_.post_ops) {
      if (op.kind == PostOp::sum) return -1;
      if (op.kind != PostOp::add) continue;
      if (found >= 0) return -1;
      found = op.operand;
    }
    if (found < 0 || p_.transposed) return -1;
    const TensorRef &x = in[found], &y = out[0];
    const bool alike = x.dtype == y.dtype && (y.dtype == DType::f32 || is_half(y.dtype)) &&
                       std::equal(x.sizes.begin(), x.sizes.end(), y.sizes.begin(), y.sizes.end());
    return alike ? found : -1;
  }

  struct Form {
    int summed;     ///< the input that lies in the destination already, -1: none
    bool with_work; ///< with bias and post-operations
  };

  /// A form as the library is asked for it.
  struct Wanted {
    memory::desc src, weights, bias, dst;
    dnnl::primitive_attr attr;
    Use use;
    std::vector<Argument> arguments; ///< of bias, scales, post-operations and zero points
  };

  Wanted wanted(std::span<const TensorRef> in, std::span<const TensorRef> out, Form form) const {
    const memory::desc plain = weight_desc(in[1].sizes, in[1].strides, in[1].dtype);
    ScaledSums sums;
    if (is_byte(in[0].dtype) && form.with_work) sums = scaled_sums(p_.post_ops, in, out[0], 1);
    const int bias = form.with_work && p_.has_bias ? 2 : sums.bias;
    Wanted w;
    w.src = describe_image(in[0]);
    w.dst = describe_image(out[0]);
    w.weights =
        memory::desc(plain.get_dims(), is_byte(in[0].dtype) ? plain.get_data_type() : w.src.get_data_type(),
                     memory::format_tag::any);
    const memory::dims columns{out[0].sizes[1]};
    if (bias >= 0) {
      w.bias = memory::desc(columns, data_type(in[bias].dtype), memory::dims{1});
      w.arguments.push_back({DNNL_ARG_BIAS, w.bias, bias});
    }
    w.attr = attributes(p_.precision);
    dnnl::post_ops ops;
    auto add = [&](const PostOp& op) {
      if (form.summed >= 0 && op.kind == PostOp::add) return ops.append_sum(1.0f);
      auto operand = [&](int k) { // as the result is described, else fast kernels do not take it
        return in[k].sizes.size() == out[0].sizes.size() ? describe_image(in[k])
                                                         : describe(in[k].sizes, in[k].strides, in[k].dtype);
      };
      append(ops, op, operand);
      if (op.operand >= 0 && op.kind != PostOp::sum) // a sum's operand is the destination
        w.arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len() - 1) | DNNL_ARG_SRC_1,
                               operand(op.operand), op.operand});
    };
    if (form.with_work) append_all(std::span(p_.post_ops).subspan(sums.post_ops), out[0].dtype, add);
    w.attr.set_post_ops(ops);
    if (sums.has_scale()) {
      const int of_columns = p_.group > 1 ? 3 : 1; // weights have groups first
      w.attr.set_scales_mask(DNNL_ARG_WEIGHTS, sums.is_of_columns ? of_columns : 0);
      w.arguments.push_back(scale_argument(sums, columns));
    }
    if (p_.x_zero >= 0) {
      w.attr.set_zero_points_mask(DNNL_ARG_SRC, 0);
      w.arguments.push_back({DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC, one_integer(), p_.x_zero});
    }
    w.use = {p_.transposed ? dnnl::primitive::kind::deconvolution : dnnl::primitive::kind::convolution,
             bias >= 0, ops.len() > 0, in[1].sizes.subspan(2), p_.strides};
    w.use.has_sum =
        form.with_work && std::any_of(p_.post_ops.begin(), p_.post_ops.end(), [&](const PostOp& op) {
          return op.kind == PostOp::sum || (form.summed >= 0 && op.kind == PostOp::add);
        });
    w.use.has_empty_window = has_empty_window(p_, in[0], in[1], out[0]);
    w.use.has_zero_point = p_.x_zero >= 0;
    w.use.large_sums = large_sums_;
    w.use.pixels = checked_numel(out[0].sizes.subspan(2));
    w.use.pixel_bytes = in[1].sizes[1] * (is_byte(in[0].dtype) ? 1 : 2);
    for (size_t d = 0; d < p_.dilations.size(); ++d) {
      const int64_t pad = std::max(p_.pads_begin[d], p_.pads_end[d]);
      w.use.pads_dilated |= p_.dilations[d] > 1 && pad > 0;
      if (d + 1 < p_.dilations.size()) {
        w.use.outer_pad = std::max(w.use.outer_pad, pad);
        continue;
      }
      w.use.pads_last = pad > 0;
      const int64_t read =
          (out[0].sizes[d + 2] - 1) * p_.strides[d] + (in[1].sizes[d + 2] - 1) * p_.dilations[d] + 1;
      w.use.pads_as_left_over = p_.pads_begin[d] > 0 && read == in[0].sizes[d + 2];
    }
    return w;
  }

  /// Calls `f` with the library's descriptor of the form, an empty one where it has no implementation.
  template <class F> auto with_descriptor(const Wanted& w, F&& f) const {
    memory::dims strides(p_.strides.begin(), p_.strides.end()), dilations, pads_l(p_.pads_begin),
        pads_r(p_.pads_end);
    for (int64_t d : p_.dilations) dilations.push_back(d - 1);
    const auto inference = dnnl::prop_kind::forward_inference;
    if (!p_.transposed)
      return f(dnnl::convolution_forward::primitive_desc(
          cpu_engine(), inference, dnnl::algorithm::convolution_direct, w.src, w.weights, w.bias, w.dst,
          strides, dilations, pads_l, pads_r, w.attr, /*allow_empty=*/true));
    return f(dnnl::deconvolution_forward::primitive_desc(
        cpu_engine(), inference, dnnl::algorithm::deconvolution_direct, w.src, w.weights, w.bias, w.dst,
        strides, dilations, pads_l, pads_r, w.attr, /*allow_empty=*/true));
  }

  /// Threads to tell the library of. It cuts the line of a result among them, and where padding is wider than
  /// the kernel describes a kernel for each length that a part may have (release 3.2): with two threads these
  /// take megabytes, and longer to make than a line of 10000 pixels to compute. Tasks of more threads than
  /// there are follow each other.
  int parts_of_line(const TensorRef& image, const TensorRef& result) const {
    const int threads = tbb::this_task_arena::max_concurrency();
    const int64_t width = result.sizes.back();
    const bool is_line = checked_numel(std::span(result.sizes).subspan(2)) == width;
    if (!is_line || width <= kPart || image.dtype != DType::f32) return threads;
    const int64_t lines = result.sizes[0] * ((result.sizes[1] + kColumns - 1) / kColumns);
    const int64_t parts = std::min((lines * width + kPart - 1) / kPart, kMostParts);
    return static_cast<int>(std::max<int64_t>(threads, parts / threads * threads));
  }

  /// What the library would run for a form.
  Implementation implementation(std::span<const TensorRef> in, std::span<const TensorRef> out,
                                Form form) const {
    return as_with_threads(parts_of_line(in[0], out[0]), [&] {
      return *shared_answer(key(in, out, form), [&] {
        const Wanted w = wanted(in, out, form);
        return with_descriptor(w, [&](auto descriptor) { return choose(descriptor, w.use); });
      });
    });
  }

  /// The call of a convolution in this form; its primitive has no name where all implementations are refused.
  Stage call(std::span<const TensorRef> in, std::span<const TensorRef> out, Form form) const {
    Wanted w = wanted(in, out, form);
    Stage stage;
    stage.primitive = as_with_threads(parts_of_line(in[0], out[0]), [&] {
      return shared_primitive(key(in, out, form), [&] {
        return with_descriptor(w,
                               [&](auto descriptor) { return make_primitive(std::move(descriptor), w.use); });
      });
    });
    stage.arguments = std::move(w.arguments);
    stage.arguments.push_back({DNNL_ARG_SRC, w.src, 0});
    stage.arguments.push_back({DNNL_ARG_DST, w.dst, -1, 0});
    return stage;
  }

  Key key(std::span<const TensorRef> in, std::span<const TensorRef> out, Form form) const {
    Key k;
    k.add(static_cast<int64_t>(dnnl::primitive::kind::convolution)).add(p_.transposed).add(p_.has_bias);
    k.add(static_cast<int64_t>(p_.precision))
        .add(p_.x_zero)
        .add(large_sums_)
        .add(p_.group)
        .add(form.summed)
        .add(form.with_work);
    k.add(p_.strides).add(p_.dilations).add(p_.pads_begin).add(p_.pads_end).add(p_.post_ops);
    for (const TensorRef& t : in) k.add(t);
    for (const TensorRef& t : out) k.add(t);
    return k;
  }

  /// Gives the convolution, stage number `at`, its weights in the order that it wants.
  std::shared_ptr<Prepared> finish(std::span<const TensorRef> in, std::vector<Stage> stages, size_t at,
                                   std::string passed_over = "", std::vector<int64_t> buffers = {}) const {
    std::vector<memory> owned;
    const memory::desc plain = weight_desc(in[1].sizes, in[1].strides, in[1].dtype);
    const memory::desc wanted = stages[at].primitive->weights();
    std::vector<Argument>& arguments = stages[at].arguments;
    if (packed_) {
      owned.push_back(packed_->get(wanted));
      arguments.push_back({DNNL_ARG_WEIGHTS, wanted, -1, -1, owned.back().get_data_handle()});
    } else if (wanted == plain) {
      arguments.push_back({DNNL_ARG_WEIGHTS, plain, 1});
    } else {
      const int own = static_cast<int>(buffers.size());
      buffers.push_back(static_cast<int64_t>(wanted.get_size()));
      arguments.push_back({DNNL_ARG_WEIGHTS, wanted, -1, -1, nullptr, own});
      stages.insert(stages.begin() + static_cast<std::ptrdiff_t>(at), copy_stage(1, plain, wanted, own));
    }
    return std::make_shared<Prepared>(std::move(stages), buffers, std::move(owned), std::move(passed_over));
  }

  ConvProblem p_;
  bool large_sums_; ///< of bytes (Use)
  std::vector<OperandInfo> inputs_, outputs_;
  std::unique_ptr<PackedWeights> packed_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const ExternKernel> own_; ///< made where it is needed
  mutable PreparedCache cache_;
};

/// Channels that the library's kernels work on together, whether there are as many or not.
constexpr int64_t kBlock = 16;

/// As OneDnnConv::slow, of operands that may not be known.
std::string slow(const ConvProblem& p, std::span<const OperandInfo> inputs,
                 std::span<const OperandInfo> outputs, const Target& target, bool or_beside) {
  const Guess guess(p, inputs, outputs);
  if (guess.is_empty) return {};
  try {
    return as_with_threads(target.threads, [&] {
      return OneDnnConv(p, inputs, outputs, true).slow(guess.inputs, guess.outputs, or_beside);
    });
  } catch (const dnnl::error& e) {
    if (e.status == dnnl_unimplemented) return "the library has no implementation";
    return {}; // sizes that do not fit are found before a run
  }
}

} // namespace

std::string supports_onednn_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs, const Target& target) {
  const auto& p = std::get<ConvProblem>(problem);
  const bool bytes = is_byte(inputs[0].dtype) && inputs[1].dtype == DType::i8;
  if (bytes) {
    if (std::string reason = inexact_bytes(); !reason.empty()) return reason;
    if (p.has_bias || p.transposed) return "a bias or a transposed convolution of integers";
    if (!inputs[1].constant) return "integer weights that change";
    // Sums that are stored as integers go through float32 here even where nothing is added to them.
    const OperandInfo& w = inputs[1];
    if (outputs[0].dtype == DType::i32)
      if (std::string reason = inexact_sums(w, 0, checked_numel(std::span(w.sizes).subspan(1)), false);
          !reason.empty())
        return reason;
  }
  if (!bytes)
    if (std::string reason = unfit_floats(inputs, outputs[0].dtype); !reason.empty()) return reason;
  for (size_t k = 2; bytes && k < inputs.size(); ++k) {
    const DType type = inputs[k].dtype;
    if (!(static_cast<int>(k) == p.x_zero && type == DType::i32) && type != DType::f32 && !is_byte(type) &&
        type != DType::undefined)
      return fmt::format("{} operands", name_of(type));
  }
  if (std::string reason = unfit_result(bytes, outputs[0].dtype, !p.post_ops.empty()); !reason.empty())
    return reason;
  if (p.spatial_rank < 1 || p.spatial_rank > 3) return fmt::format("{} spatial dimensions", p.spatial_rank);
  if (p.spatial_rank == 1 && !bytes && is_depthwise(p, inputs[1].sizes))
    return "depthwise in one dimension: each channel would be a block of 16";
  if (p.transposed && p.post_ops.empty() && inputs[1].sizes[1] >= 0 && inputs[1].sizes[1] < kBlock &&
      std::any_of(p.strides.begin(), p.strides.end(), [](int64_t s) { return s > 1; }))
    return "a strided transposed convolution with fewer results than a block of 16";
  for (size_t k = 0; k < p.pads_begin.size(); ++k)
    if (p.pads_begin[k] < 0 || (p.pads_end[k] < 0 && !p.transposed)) return "negative padding";
  if (inputs[1].constant && inputs[1].strides.empty()) return "weights without known strides";
  // Nothing else does post-operations: whether they go along was asked before (accepts_post_ops).
  return p.post_ops.empty() ? slow(p, inputs, outputs, target, true) : "";
}

namespace onednn {
std::string slow_work(const ConvProblem& p, std::span<const OperandInfo> inputs,
                      std::span<const OperandInfo> outputs, const Target& target) {
  return slow(p, inputs, outputs, target, false);
}
} // namespace onednn

std::unique_ptr<ExternKernel> make_onednn_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs) {
  return std::make_unique<OneDnnConv>(std::get<ConvProblem>(problem), inputs, outputs);
}

} // namespace tbx::extern_kernels
