#include "extern_kernels/cuda/depthwise_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kParts =
#include "extern_kernels/cuda/depthwise_parts.inc"
    ;
const char* const kStripsText =
#include "extern_kernels/cuda/depthwise_conv.inc"
    ;
const char* const kTileText =
#include "extern_kernels/cuda/depthwise_tile.inc"
    ;

constexpr int64_t kMostTaps = 128, kMostSpan = 32; ///< loops over a row of the window are unrolled
constexpr size_t kMostSteps = 6;

/// A tensor over the result, as the text has it.
struct DepthwiseOperand {
  const void* data = nullptr;
  int type = 0;
  int64_t steps[4] = {};
};

/// The parameter of the text, which has as many steps as there are, one at least.
struct DepthwiseArguments {
  const void *x = nullptr, *w = nullptr;
  void* y = nullptr;
  int images = 0, channels = 0, rows = 1, columns = 0, in_rows = 1, in_columns = 0, pad_h = 0, pad_w = 0;
  int64_t x_steps[4] = {}, y_steps[4] = {}, w_steps[3] = {};
  DepthwiseOperand bias;
  struct Step {
    float alpha = 0, beta = 0;
    DepthwiseOperand operand;
  } post[kMostSteps];
};

/// [images, channels, rows, columns]; one spatial dimension: columns.
void set_steps(std::span<const int64_t> strides, int64_t (&to)[4]) {
  to[0] = strides[0], to[1] = strides[1], to[3] = strides.back();
  to[2] = strides.size() == 4 ? strides[2] : 0;
}

class DepthwiseConv final : public ExternKernel {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

  DepthwiseConv(device::Device& device, const ConvProblem& p, std::span<const OperandInfo> in, Load load)
      : p_(p), device_(device), type_(in[0].dtype), w_(in[1]), load_(std::move(load)),
        multiprocessors_(std::max(1, device.properties().multiprocessors)),
        threads_(multiprocessors_ * kThreadsOfMultiprocessor) {
    if (!load_) load_ = [&device](const std::string& text) { return loaded(device, text); };
    if (w_.constant && w_.strides.empty()) w_.constant = nullptr;
  }

  std::string description() const override {
    return fmt::format("our own depthwise {}", to_string(Problem(p_)));
  }

  int64_t packed_bytes() const override {
    std::scoped_lock lock(mutex_);
    return packed_ ? static_cast<int64_t>(packed_->bytes()) : 0;
  }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    const TensorRef &x = args.inputs[0], &w = args.inputs[1], &y = args.outputs[0];
    if (y.numel() == 0) return;
    DepthwiseArguments a;
    const bool flat = y.sizes.size() == 3;
    auto as_int = [](int64_t n) {
      TBX_MODEL(n <= std::numeric_limits<int>::max(), "a dimension of {} elements", n);
      return static_cast<int>(n);
    };
    a.x = x.data, a.w = w.data, a.y = y.data;
    a.images = as_int(y.sizes[0]), a.channels = as_int(y.sizes[1]), a.columns = as_int(y.sizes.back());
    a.in_columns = as_int(x.sizes.back()), a.pad_w = as_int(p_.pads_begin.back());
    if (!flat) {
      a.rows = as_int(y.sizes[2]), a.in_rows = as_int(x.sizes[2]);
      a.pad_h = as_int(p_.pads_begin[0]);
    }
    set_steps(x.strides, a.x_steps);
    set_steps(y.strides, a.y_steps);
    a.w_steps[0] = w.strides[0], a.w_steps[1] = flat ? 0 : w.strides[2], a.w_steps[2] = w.strides.back();
    if (w_.constant) {
      a.w = packed();
      a.w_steps[0] = 1, a.w_steps[1] = 0, a.w_steps[2] = a.channels;
    }
    if (p_.has_bias) {
      const TensorRef& b = args.inputs[2];
      a.bias = {b.data, static_cast<int>(b.dtype), {0, b.strides[0], 0, 0}};
    }
    for (size_t i = 0; i < p_.post_ops.size(); ++i) {
      const PostOp& op = p_.post_ops[i];
      a.post[i].alpha = op.alpha, a.post[i].beta = op.beta;
      if (op.operand < 0) continue;
      const View v = view_of(args.inputs[op.operand], y.sizes);
      a.post[i].operand.data = v.data, a.post[i].operand.type = v.type;
      const std::vector<int64_t> strides(v.strides, v.strides + y.sizes.size());
      set_steps(strides, a.post[i].operand.steps);
    }
    if (const std::optional<Tile> tile = tile_of(a))
      run_tile(*args.stream, a, *tile);
    else
      run_strips(*args.stream, a, w);
  }

private:
  static constexpr int64_t kThreads = 256, kFewestThreads = 64; ///< of a block
  static constexpr int64_t kSharedBytes = 48 << 10;             ///< that every block may have
  static constexpr int64_t kThreadsOfMultiprocessor =
      128; ///< that hide what each waits for; more would read more

  struct Cut {
    int64_t each = 1, strip = 1, lanes = 32;
    bool space = false;
  };

  /// Wide reads and long strips as long as threads fill the device.
  Cut cut_of(const DepthwiseArguments& a, int64_t points) const {
    Cut c;
    const int64_t element = size_of(type_);
    auto fits = [&](int64_t each) {
      bool all = a.channels % each == 0;
      for (const void* data : {a.x, static_cast<const void*>(a.y), a.w})
        all = all && reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(each * element) == 0;
      for (size_t d : {0, 2, 3}) all = all && a.x_steps[d] % each == 0 && a.y_steps[d] % each == 0;
      return all && (each == 1 || (a.x_steps[1] == 1 && a.y_steps[1] == 1 && w_.constant));
    };
    auto threads = [&] { return points * (a.channels / c.each) * ((a.columns + c.strip - 1) / c.strip); };
    c.each = 16 / element;
    while (!fits(c.each)) c.each /= 2;
    for (c.strip = kMostStrip; c.strip > 1 && (span(c.strip) > kMostSpan || threads() < threads_);)
      c.strip /= 2;
    while (c.each > 1 && c.each * element > 4 && threads() < threads_) c.each /= 2;
    c.space = a.y_steps[1] != 1 && a.y_steps[3] == 1;
    if (const int64_t shares = a.channels / c.each; !c.space) {
      constexpr int64_t kFew = 8; // lanes that read what lies together
      while (c.lanes > kFew && shares % c.lanes != 0) --c.lanes;
      if (shares % c.lanes != 0) c.lanes = std::min<int64_t>(32, shares);
    }
    return c;
  }
  static constexpr int64_t kMostStrip = 4;
  int64_t span(int64_t strip) const {
    return (strip - 1) * p_.strides.back() + (w_.sizes.back() - 1) * p_.dilations.back() + 1;
  }

  void run_strips(device::Stream& stream, DepthwiseArguments& a, const TensorRef& w) const {
    const int64_t points = int64_t{a.images} * a.rows;
    const Cut cut = cut_of(a, points);
    int64_t together = kThreads / cut.lanes; // strips of a block
    const int64_t strips = points * parts(a.columns, cut.strip), shares = a.channels / cut.each;
    while (together > 1 && together * cut.lanes > kFewestThreads &&
           parts(strips, together) * parts(shares, cut.lanes) < 2 * multiprocessors_)
      together /= 2;
    const int64_t blocks = cut.space ? parts(strips * shares, together * cut.lanes)
                                     : parts(strips, together) * parts(shares, cut.lanes);
    const std::string own = fmt::format("#define SPACE {}\n#define LANES {}\n#define PACKED {}\n",
                                        cut.space ? 1 : 0, cut.lanes, w_.constant ? 1 : 0);
    void* arguments[] = {&a};
    stream.launch(compiled(own, cut.each, cut.strip, w.sizes, kStripsText).kernel("depthwise_conv"),
                  shape_of(blocks, together * cut.lanes), arguments);
  }

  /// What a block of depthwise_tile.inc does: `rows` times `strips` strips of `slab` channels.
  struct Tile {
    int64_t each = 1, vector = 1, strip = 1, slab = 32, rows = 1, strips = 1;
    int64_t threads = 0, blocks = 0, shared_bytes = 0;
  };

  /// Empty where channels are not innermost, weights are no constants, or nothing fits.
  std::optional<Tile> tile_of(const DepthwiseArguments& a) const {
    if (!w_.constant || a.x_steps[1] != 1 || a.y_steps[1] != 1) return std::nullopt;
    const bool flat = p_.strides.size() == 1;
    const int64_t element = size_of(type_), kernel_h = flat ? 1 : w_.sizes[2],
                  stride_h = flat ? 1 : p_.strides[0], dilation_h = flat ? 1 : p_.dilations[0];
    auto fits = [&](int64_t n, const void* data, const int64_t(&steps)[4]) {
      return a.channels % n == 0 &&
             reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(n * element) == 0 &&
             steps[0] % n == 0 && steps[2] % n == 0 && steps[3] % n == 0;
    };
    Tile t;
    for (t.vector = 16 / element; !fits(t.vector, a.x, a.x_steps);) t.vector /= 2;
    t.each = fits(2, a.y, a.y_steps) ? 2 : 1;
    // Lanes of a slab that have no channel are idle.
    if (parts(a.channels, 16) * 16 * 5 < parts(a.channels, 32) * 32 * 4) t.slab = 16;
    for (t.strip = kMostStrip; t.strip > 1 && (span(t.strip) > kMostSpan || t.strip / 2 >= a.columns);)
      t.strip /= 2;
    std::optional<Tile> best;
    double least = 0;
    for (t.rows = 1; t.rows <= 8; t.rows *= 2)
      for (t.strips = 1; t.strips <= 8; t.strips *= 2) {
        const int64_t pixels =
            ((t.rows - 1) * stride_h + (kernel_h - 1) * dilation_h + 1) * span(t.strips * t.strip);
        t.threads = t.slab / t.each * t.rows * t.strips;
        t.shared_bytes = (pixels + kernel_h * w_.sizes.back()) * t.slab * size_of(DType::f32);
        t.blocks = int64_t{a.images} * parts(a.channels, t.slab) * parts(a.rows, t.rows) *
                   parts(a.columns, t.strip * t.strips);
        if (t.threads > kThreads || t.shared_bytes > kSharedBytes) continue;
        // Pixels that a multiprocessor loads one after the other; blocks of few threads hide nothing.
        const double pixels_in_turn =
            static_cast<double>(pixels) *
            std::max(1.0, static_cast<double>(t.blocks) / static_cast<double>(2 * multiprocessors_)) *
            (t.threads < kFewestThreads ? 2 : 1);
        if (!best || pixels_in_turn < least) best = t, least = pixels_in_turn;
      }
    return best;
  }

  void run_tile(device::Stream& stream, DepthwiseArguments& a, const Tile& t) const {
    const std::string own = fmt::format("#define SLAB {}\n#define VECTOR {}\n", t.slab, t.vector);
    int rows = static_cast<int>(t.rows), strips = static_cast<int>(t.strips);
    void* arguments[] = {&a, &rows, &strips};
    device::LaunchShape shape = shape_of(t.blocks, parts(t.threads, 32) * 32);
    shape.shared_bytes = static_cast<uint32_t>(t.shared_bytes);
    stream.launch(compiled(own, t.each, t.strip, w_.sizes, kTileText).kernel("depthwise_tile"), shape,
                  arguments);
  }

  static int64_t parts(int64_t n, int64_t of) { return (n + of - 1) / of; }
  static device::LaunchShape shape_of(int64_t blocks, int64_t threads) {
    TBX_MODEL(blocks <= std::numeric_limits<int>::max(), "a convolution of {} blocks", blocks);
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(blocks);
    shape.threads = static_cast<uint32_t>(threads);
    return shape;
  }

  /// `own`: macros of the kernel alone.
  device::Module& compiled(const std::string& own, int64_t each, int64_t strip,
                           std::span<const int64_t> window, const char* kernel) const {
    const bool flat = p_.strides.size() == 1;
    std::string kinds;
    for (const PostOp& op : p_.post_ops) kinds += fmt::format("{}, ", static_cast<int>(op.kind));
    const std::string text = fmt::format(
        "{}#define TYPE {}\n#define EACH {}\n#define STRIP {}\n#define KERNEL_H {}\n#define KERNEL_W {}\n"
        "#define STRIDE_H {}\n#define STRIDE_W {}\n#define DILATION_H {}\n#define DILATION_W {}\n"
        "#define STEPS {}\nnamespace tbx {{ namespace depthwise_conv_ {{\nconstexpr int kKind[] = "
        "{{{}0}};\n}} }}\n{}{}",
        own, static_cast<int>(type_), each, strip, flat ? 1 : window[2], window.back(),
        flat ? 1 : p_.strides[0], p_.strides.back(), flat ? 1 : p_.dilations[0], p_.dilations.back(),
        p_.post_ops.size(), kinds, kParts, kernel);
    std::scoped_lock lock(mutex_);
    std::shared_ptr<device::Module>& module = modules_[text];
    if (!module) module = load_(text);
    return *module;
  }

  /// Constant weights as [taps, channels], uploaded by the first call.
  const void* packed() const {
    std::scoped_lock lock(mutex_);
    if (packed_) return packed_->data();
    const int64_t element = size_of(type_), channels = w_.sizes[0];
    const bool flat = w_.sizes.size() == 3;
    const int64_t rows = flat ? 1 : w_.sizes[2], columns = w_.sizes.back();
    std::vector<char> bytes(static_cast<size_t>(checked_numel(w_.sizes) * element));
    const auto* from = reinterpret_cast<const char*>(w_.constant->data);
    char* to = bytes.data();
    for (int64_t h = 0; h < rows; ++h)
      for (int64_t k = 0; k < columns; ++k)
        for (int64_t c = 0; c < channels; ++c, to += element) {
          const int64_t at = c * w_.strides[0] + (flat ? 0 : h * w_.strides[2]) + k * w_.strides.back();
          std::memcpy(to, from + at * element, static_cast<size_t>(element));
        }
    auto memory = device_.allocate(bytes.size());
    const auto stream = device_.make_stream();
    stream->upload(memory->data(), bytes.data(), bytes.size());
    stream->synchronize();
    packed_ = std::move(memory);
    return packed_->data();
  }

  ConvProblem p_;
  device::Device& device_;
  DType type_;
  OperandInfo w_;
  Load load_;
  int64_t multiprocessors_, threads_; ///< threads that fill the device
  mutable std::mutex mutex_;
  mutable std::unique_ptr<device::Memory> packed_;
  mutable std::map<std::string, std::shared_ptr<device::Module>> modules_; ///< by text
};

} // namespace

std::string supports_cuda_depthwise_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                         std::span<const OperandInfo> outputs, const device::Properties&) {
  const auto& p = std::get<ConvProblem>(problem);
  const std::vector<int64_t>& w = inputs[1].sizes;
  if (p.transposed || p.group < 2 || w.size() < 3 || w[0] != p.group || w[1] != 1)
    return "not one kernel for each channel";
  if (p.spatial_rank > 2) return "more than two spatial dimensions";
  const DType type = inputs[0].dtype;
  if (type != DType::f32 && !is_half(type)) return fmt::format("{} operands", name_of(type));
  if (inputs[1].dtype != type || outputs[0].dtype != type) return "operands and result of different types";
  if (p.x_zero >= 0) return "a zero point";
  int64_t taps = 1;
  for (size_t d = 2; d < w.size(); ++d) {
    if (w[d] < 1) return "a window whose size is not known";
    taps *= w[d];
  }
  if (taps > kMostTaps || (w.back() - 1) * p.dilations.back() >= kMostSpan) return "a large window";
  if (p.post_ops.size() > kMostSteps) return fmt::format("more than {} post-operations", kMostSteps);
  for (size_t i = 2; i < inputs.size(); ++i)
    if (const DType t = inputs[i].dtype; t != DType::undefined && t != DType::f32 && !is_half(t))
      return fmt::format("{} operands", name_of(t));
  return {};
}

std::unique_ptr<ExternKernel>
make_depthwise_conv(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                    std::function<std::shared_ptr<device::Module>(const std::string&)> load) {
  return std::make_unique<DepthwiseConv>(device, std::get<ConvProblem>(problem), inputs, std::move(load));
}

std::unique_ptr<ExternKernel> make_cuda_depthwise_conv(device::Device& device, const Problem& problem,
                                                       std::span<const OperandInfo> inputs,
                                                       std::span<const OperandInfo>) {
  return make_depthwise_conv(device, problem, inputs);
}

} // namespace tbx::extern_kernels
