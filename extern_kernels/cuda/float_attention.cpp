#include "extern_kernels/cuda/float_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "extern_kernels/cuda/loop_attention.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/launched_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kFloatText =
#include "extern_kernels/cuda/float_attention.inc"
    ;

/// Columns of a head as the text has them.
int64_t in_vectors(int64_t columns) { return (columns + 3) / 4 * 4; }

class FloatAttention final : public LaunchedKernel {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  static constexpr int64_t kRowsOfTile = 32, kKeysOfTile = 64, kWidestHead = 128;

  FloatAttention(device::Device& device, const AttentionProblem& p, std::span<const OperandInfo> in,
                 Load load)
      : p_(p), depth_(in[0].sizes[3]), width_(in[2].sizes[3]),
        mask_(p.has_mask ? in[3].dtype : DType::undefined), properties_(device.properties()),
        load_(std::move(load)) {
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    const auto& q = in[0].sizes;
    if (std::min({q[0], q[1], q[2], in[1].sizes[2]}) > 0) // for the first run
      compiled_for(depth_ % 4 == 0 && width_ % 4 == 0,
                   groups_of(q[0] * q[1] * tiles_of(q[2]), in[1].sizes[2]));
  }

  /// `groups` of warps, each with keys of its own.
  static int64_t shared_bytes(int64_t depth, int64_t width, int64_t groups) {
    const int64_t step = in_vectors(depth) + 4;
    const int64_t of_group = kKeysOfTile * (step + in_vectors(width) + kRowsOfTile + 4);
    return (kRowsOfTile * step + groups * of_group) * size_of(DType::f32);
  }

  std::string description() const override { return "our own " + to_string(Problem(p_)) + " in tiles"; }

  void run(const RunArgs& args) const override {
    const TensorRef &q = args.inputs[0], &y = args.outputs[0];
    if (y.numel() == 0) return;
    AttentionArguments a = attention_arguments(p_, args.inputs, y);
    const int64_t blocks = q.sizes[0] * a.heads * tiles_of(a.queries), groups = groups_of(blocks, a.keys);
    if (blocks > INT32_MAX) throw_unsupported("attention of {} blocks of queries", blocks);
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(blocks);
    shape.threads = static_cast<uint32_t>(128 * groups);
    shape.shared_bytes = static_cast<uint32_t>(shared_bytes(depth_, width_, groups));
    void* pointers[] = {&a};
    const bool vector = std::all_of(args.inputs.begin(), args.inputs.begin() + 3, in_whole_vectors);
    args.stream->launch(compiled_for(vector, groups), shape, pointers);
  }

private:
  static int64_t tiles_of(int64_t queries) { return (queries + kRowsOfTile - 1) / kRowsOfTile; }
  /// Two where blocks do not fill the device: their warps would wait for each other alone.
  int64_t groups_of(int64_t blocks, int64_t keys) const {
    const bool fits = shared_bytes(depth_, width_, 2) <= properties_.shared_bytes_block;
    return blocks <= properties_.multiprocessors && keys > kKeysOfTile && fits ? 2 : 1;
  }
  static bool in_whole_vectors(const TensorRef& t) {
    if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0 || t.sizes[3] % 4 != 0) return false;
    if (t.sizes[3] > 1 && t.strides[3] != 1) return false;
    return std::all_of(t.strides.begin(), t.strides.end() - 1, [](int64_t s) { return s % 4 == 0; });
  }

  device::Kernel compiled_for(bool vector, int64_t groups) const {
    std::scoped_lock lock(mutex_);
    std::shared_ptr<device::Module>& module = modules_[{vector, groups}];
    if (!module)
      module = load_(fmt::format(
          "#define DEPTH {}\n#define WIDTH {}\n#define VECTOR {}\n#define MASK {}\n#define GROUPS {}\n{}\n{}",
          in_vectors(depth_), in_vectors(width_), vector ? 1 : 0, static_cast<int>(mask_), groups,
          loops_arguments(), kFloatText));
    return module->kernel("float_attention");
  }

  AttentionProblem p_;
  int64_t depth_, width_;
  DType mask_; ///< undefined: none
  device::Properties properties_;
  Load load_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<bool, int64_t>, std::shared_ptr<device::Module>> modules_; ///< by vector, groups
};

} // namespace

std::string refuses_float_attention(const device::Properties& properties, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs) {
  for (size_t i = 0; i < 3; ++i)
    if (inputs[i].dtype != DType::f32) return fmt::format("{} operands", name_of(inputs[i].dtype));
  if (outputs[0].dtype != DType::f32) return fmt::format("a result of {}", name_of(outputs[0].dtype));
  for (size_t i : {3, 5}) { // a mask, sinks
    const DType t = inputs.size() > i ? inputs[i].dtype : DType::undefined;
    if (t != DType::undefined && t != DType::f32 && t != DType::f64 && !is_half(t))
      return fmt::format("{} beside the scores", name_of(t));
  }
  const int64_t depth = inputs[0].sizes[3], width = inputs[2].sizes[3];
  if (depth < 1 || width < 1) return "heads whose width is known at run time only";
  if (std::max(depth, width) > FloatAttention::kWidestHead)
    return fmt::format("heads wider than {}", FloatAttention::kWidestHead);
  if (FloatAttention::shared_bytes(depth, width, 1) > properties.shared_bytes_block)
    return "tiles that are larger than the memory of a block";
  return {};
}

std::unique_ptr<ExternKernel>
make_float_attention(device::Device& device, const AttentionProblem& problem,
                     std::span<const OperandInfo> inputs,
                     std::function<std::shared_ptr<device::Module>(const std::string&)> load) {
  return std::make_unique<FloatAttention>(device, problem, inputs, std::move(load));
}

} // namespace tbx::extern_kernels
