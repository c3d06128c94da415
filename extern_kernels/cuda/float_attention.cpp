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

const char* const kEarlyStart =
#include "extern_kernels/cuda/early_start.inc"
    ;

const char* const kFloatText =
#include "extern_kernels/cuda/float_attention.inc"
    ;

/// Columns of a head as the text has them.
int64_t in_vectors(int64_t columns) { return (columns + 3) / 4 * 4; }

class FloatAttention final : public LaunchedKernel {
public:
  using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;
  static constexpr int64_t kKeysOfTile = 64, kWidestHead = 128;

  FloatAttention(device::Device& device, const AttentionProblem& p, std::span<const OperandInfo> in,
                 Load load)
      : p_(p), depth_(in[0].sizes[3]), width_(in[2].sizes[3]),
        mask_(p.has_mask ? in[3].dtype : DType::undefined), properties_(device.properties()),
        has_clusters_(!load && has_clusters(properties_)), load_(std::move(load)) {
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    // What the first run will most likely want, where it tells the sizes: one sequence of middle length.
    auto likely = [](int64_t size, int64_t unknown) { return size < 0 ? unknown : size; };
    const auto& q = in[0].sizes;
    const int64_t heads = likely(q[0], 1) * likely(q[1], 16), queries = likely(q[2], 128),
                  keys = likely(in[1].sizes[2], 128);
    if (std::min({heads, queries, keys}) > 0)
      compiled_for(depth_ % 4 == 0 && width_ % 4 == 0, sharing_of(heads, queries, keys));
  }

  /// Who has which queries and keys.
  struct Sharing {
    int64_t each = 4, groups = 1,
            blocks = 1;   ///< rows of a thread, groups of warps in a block, blocks of a cluster
    int64_t together = 1; ///< blocks that a multiprocessor is to have registers for
    int64_t rows() const { return 8 * each; } ///< queries of a block
    auto
    operator<=>(const Sharing&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
  };
  /// Weights of eight rows lie where keys were, which leaves room for more blocks.
  static bool lies_over(int64_t depth, const Sharing& s) {
    return s.each == 8 && s.rows() <= in_vectors(depth);
  }
  static int64_t shared_bytes(int64_t depth, int64_t width, const Sharing& s) {
    const int64_t step = in_vectors(depth) + 4;
    const int64_t weights = lies_over(depth, s) ? 0 : s.rows() + 4;
    const int64_t of_group = kKeysOfTile * (step + in_vectors(width) + weights);
    return (s.rows() * step + s.groups * of_group) * size_of(DType::f32);
  }

  std::string description() const override { return "our own " + to_string(Problem(p_)) + " in tiles"; }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    const TensorRef &q = args.inputs[0], &y = args.outputs[0];
    if (y.numel() == 0) return;
    AttentionArguments a = attention_arguments(p_, args.inputs, y);
    const Sharing sharing = sharing_of(q.sizes[0] * a.heads, a.queries, a.keys);
    const int64_t blocks = blocks_of(q.sizes[0] * a.heads, a.queries, sharing) * sharing.blocks;
    if (std::max<int64_t>(blocks, a.keys) > INT32_MAX)
      throw_unsupported("attention of {} blocks of queries and {} keys", blocks, a.keys);
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(blocks);
    shape.threads = static_cast<uint32_t>(128 * sharing.groups);
    shape.shared_bytes = static_cast<uint32_t>(shared_bytes(depth_, width_, sharing));
    shape.overlap = begins_early(properties_) && blocks <= device::kMostEarlyBlocks;
    void* pointers[] = {&a};
    const bool vector = std::all_of(args.inputs.begin(), args.inputs.begin() + 3, in_whole_vectors);
    args.stream->launch(compiled_for(vector, sharing), shape, pointers);
  }

private:
  static int64_t blocks_of(int64_t heads, int64_t queries, const Sharing& s) {
    return heads * ((queries + s.rows() - 1) / s.rows());
  }
  bool fits(const Sharing& s) const {
    return shared_bytes(depth_, width_, s) <= properties_.shared_bytes_block;
  }
  /// Measured on an H100 with 64 to 4,096 keys. Where blocks do not fill the device, their warps would wait
  /// for each other alone: two groups share the keys. Where they hardly do, some multiprocessors have one
  /// more to do: two blocks share many keys, and each has half. Wide heads gain from more rows for a thread,
  /// if blocks are left.
  Sharing sharing_of(int64_t heads, int64_t queries, int64_t keys) const {
    constexpr int64_t kManyKeys = 1024, kNarrow = 64;
    const int64_t all = properties_.multiprocessors, blocks = blocks_of(heads, queries, {});
    const bool narrow = std::max(depth_, width_) <= kNarrow;
    const Sharing two{4, 2, 1, 1}, wide{8, 1, 1, 2}, few{2, 2, 1, 1};
    if (blocks_of(heads, queries, few) <= all && keys > kKeysOfTile && fits(few)) return few;
    if (blocks <= all) return keys > kKeysOfTile && fits(two) ? two : Sharing{};
    if (!narrow) return blocks_of(heads, queries, wide) >= 4 * all && fits(wide) ? wide : Sharing{};
    if (has_clusters_ && blocks < 3 * all && keys >= kManyKeys) return {4, 1, 2, 4};
    return {4, 1, 1, blocks > 3 * all ? 4 : 1};
  }
  static bool in_whole_vectors(const TensorRef& t) {
    if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0 || t.sizes[3] % 4 != 0) return false;
    if (t.sizes[3] > 1 && t.strides[3] != 1) return false;
    return std::all_of(t.strides.begin(), t.strides.end() - 1, [](int64_t s) { return s % 4 == 0; });
  }

  device::Kernel compiled_for(bool vector, Sharing sharing) const {
    std::scoped_lock lock(mutex_);
    std::shared_ptr<device::Module>& module = modules_[{vector, sharing}];
    if (!module)
      module = load_(fmt::format(
          "#define DEPTH {}\n#define WIDTH {}\n#define VECTOR {}\n#define MASK {}\n#define EACH {}\n"
          "#define GROUPS {}\n#define BLOCKS {}\n#define OVER {}\n#define TOGETHER {}\n#define OVERLAP "
          "{}\n{}\n{}{}",
          in_vectors(depth_), in_vectors(width_), vector ? 1 : 0, static_cast<int>(mask_), sharing.each,
          sharing.groups, sharing.blocks, lies_over(depth_, sharing) ? 1 : 0, sharing.together,
          begins_early(properties_) ? 1 : 0, loops_arguments(), kEarlyStart, kFloatText));
    return module->kernel("float_attention");
  }

  AttentionProblem p_;
  int64_t depth_, width_;
  DType mask_; ///< undefined: none
  device::Properties properties_;
  bool has_clusters_;
  Load load_;
  mutable std::mutex mutex_;
  mutable std::map<std::pair<bool, Sharing>, std::shared_ptr<device::Module>>
      modules_; ///< by vector, sharing
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
  if (FloatAttention::shared_bytes(depth, width, {}) > properties.shared_bytes_block)
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
