#include "extern_kernels/cuda/tensor_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>

#include "base/error.h"
#include "extern_kernels/cuda/loop_attention.h"
#include "extern_kernels/launched_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kHalfTiles =
#include "extern_kernels/cuda/half_tiles.inc"
    ;
const char* const kParts =
#include "extern_kernels/cuda/tensor_attention.inc"
    ;
const char* const kHeads =
#include "extern_kernels/cuda/tensor_heads.inc"
    ;
const char* const kPlainHeads =
#include "extern_kernels/cuda/plain_heads.inc"
    ;

constexpr int64_t kWidest = 128; ///< a thread has a part of each row in registers
constexpr int64_t kRows = 16;    ///< of a tile
constexpr int kWarpsOfBlock = 8; ///< at most
constexpr int kShares = 4;       ///< warps that share the keys of plain heads, where there are few tiles

int64_t chunks(int64_t columns) { return (columns + 31) / 32; }

/// Every row of the operand can be read 16 bytes at a time.
bool rows_are_aligned(const TensorRef& t) {
  const int64_t size = size_of(t.dtype), each = 16 / size;
  const size_t last = t.sizes.size() - 1;
  if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0 || t.sizes[last] % 8 != 0) return false;
  if (t.sizes[last] > 1 && t.strides[last] != 1) return false;
  for (size_t d = 0; d < last; ++d)
    if (t.sizes[d] > 1 && t.strides[d] % each != 0) return false;
  return true;
}

using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

class TensorAttention final : public LaunchedKernel {
public:
  TensorAttention(device::Device& device, const AttentionProblem& p, std::span<const OperandInfo> inputs,
                  std::span<const OperandInfo> outputs, Load load)
      : p_(p), load_(std::move(load)), properties_(device.properties()) {
    form_.half = inputs[0].dtype;
    form_.kv = inputs[1].dtype;
    if (p.has_mask) form_.mask = inputs[3].dtype;
    form_.out = outputs[0].dtype;
    form_.softcap = p.softcap > 0;
    form_.depth = inputs[0].sizes[3], form_.width = inputs[2].sizes[3];
    form_.causal = p.causal;
    plain_ = form_.kv == form_.half && form_.out == form_.half && form_.depth % 32 == 0 &&
             form_.width % 32 == 0 && p.window == 0 && !p.has_starts && !p.has_sinks && p.softcap <= 0;
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    // What the first run will most likely want.
    const bool vector = form_.depth % 8 == 0 && form_.width % 8 == 0;
    if (plain_)
      compiled_for(vector, plain_shares(tiles_of(inputs[0].sizes)));
    else
      compiled_for(vector, 0);
  }

  std::string description() const override {
    return fmt::format("our own {} on tensor cores in {}", to_string(Problem(p_)), name_of(form_.half));
  }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    return partial_bytes(arguments(inputs, outputs[0]));
  }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    HeadsArguments a = arguments(args.inputs, args.outputs[0]);
    const bool vector = rows_are_aligned(args.inputs[0]) && rows_are_aligned(args.inputs[1]) &&
                        rows_are_aligned(args.inputs[2]) && rows_are_aligned(args.outputs[0]);
    PlainHeadsArguments plain;
    if (vector && a.splits == 1 && make_plain(args.inputs, a.problem, plain)) return run_plain(args, plain);
    const Compiled& kernels = compiled_for(vector, 0);
    const int64_t blocks = (a.tiles + a.tiles_of_block - 1) / a.tiles_of_block * a.splits;
    if (blocks > INT32_MAX) throw_unsupported("attention of {} blocks of queries", blocks);
    if (a.splits > 1) a.partial = static_cast<float*>(args.workspace);
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(blocks);
    shape.threads = static_cast<uint32_t>(a.shares * a.tiles_of_block * 32);
    shape.shared_bytes = static_cast<uint32_t>(int64_t{32} * sizeof(float) * form_.numbers() *
                                               (a.shares / 2) * a.tiles_of_block);
    void* pointers[] = {&a};
    args.stream->launch(kernels.heads, shape, pointers);
    if (a.splits == 1) return;
    shape.blocks = static_cast<uint32_t>(a.tiles);
    shape.threads = 32;
    shape.shared_bytes = 0;
    args.stream->launch(kernels.join, shape, pointers);
  }

private:
  struct Compiled {
    std::once_flag once;
    std::shared_ptr<device::Module> module;
    device::Kernel heads, join;
  };

  /// Tiles of plain heads; -1: known at run time.
  static int64_t tiles_of(std::span<const int64_t> queries) {
    if (queries[0] < 0 || queries[1] < 0 || queries[2] < 0) return -1;
    return queries[0] * queries[1] * ((queries[2] + kRows - 1) / kRows);
  }

  /// One warp for a tile where these fill the GPU.
  int plain_shares(int64_t tiles) const {
    return tiles * kShares <= int64_t{16} * properties_.multiprocessors ? kShares : 1;
  }

  /// False where the sizes or the strides are not those of plain heads.
  bool make_plain(std::span<const TensorRef> inputs, const AttentionArguments& p,
                  PlainHeadsArguments& a) const {
    const int64_t batch = inputs[0].sizes[0], row_tiles = (p.queries + kRows - 1) / kRows;
    if (!plain_ || p.keys == 0 || batch * p.heads * row_tiles > INT32_MAX) return false;
    auto steps = [](const HeadsView& view, std::span<int> to) {
      for (size_t i = 0; i < to.size(); ++i) {
        if (std::abs(view.strides[i]) > INT32_MAX) return false;
        to[i] = static_cast<int>(view.strides[i]);
      }
      return true;
    };
    if (!steps(p.q, a.q_steps) || !steps(p.k, a.k_steps) || !steps(p.v, a.v_steps) ||
        !steps(p.out, a.out_steps) || !steps(p.mask, a.mask_steps))
      return false;
    a.q = p.q.data, a.k = p.k.data, a.v = p.v.data, a.mask = p.mask.data, a.out = p.out.data;
    a.queries = static_cast<int>(p.queries), a.keys = static_cast<int>(p.keys);
    a.past = p.from_end ? a.keys - a.queries : 0;
    a.tiles = static_cast<int>(row_tiles), a.all_heads = static_cast<int>(p.heads);
    a.row_tiles = divisor_of(row_tiles), a.heads = divisor_of(p.heads);
    a.group = divisor_of(p.heads / p.kv_heads);
    a.scale = p.scale, a.zero_undefined = p.zero_undefined, a.zero_hidden = p.zero_hidden;
    return true;
  }

  void run_plain(const RunArgs& args, PlainHeadsArguments& a) const {
    const int64_t tiles = tiles_of(args.inputs[0].sizes);
    const int shares = plain_shares(tiles);
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(tiles);
    shape.threads = static_cast<uint32_t>(shares * 32);
    shape.overlap = begins_early(properties_);
    void* pointers[] = {&a};
    args.stream->launch(compiled_for(true, shares).heads, shape, pointers);
  }

  HeadsArguments arguments(std::span<const TensorRef> inputs, const TensorRef& y) const {
    HeadsArguments a;
    a.problem = attention_arguments(p_, inputs, y);
    spread_heads(a, form_, inputs[0].sizes[0], properties_.multiprocessors);
    return a;
  }

  int64_t partial_bytes(const HeadsArguments& a) const {
    return a.splits == 1 ? 0
                         : a.tiles * a.splits * form_.numbers() * 32 * static_cast<int64_t>(sizeof(float));
  }

  /// `shares`: of plain heads; 0: in all their forms.
  const Compiled& compiled_for(bool vector, int shares) const {
    Compiled& c = shares > 0 ? plain_compiled_[shares > 1 ? 1 : 0] : compiled_[vector ? 1 : 0];
    std::call_once(c.once, [&] {
      HeadsForm form = form_;
      form.vector = vector;
      form.shares = shares;
      form.overlap = shares > 0 && begins_early(properties_);
      c.module = load_(form.text());
      c.heads = c.module->kernel(shares > 0 ? "plain_heads" : "heads");
      if (shares == 0) c.join = c.module->kernel("join_heads");
    });
    return c;
  }

  AttentionProblem p_;
  HeadsForm form_;
  Load load_;
  device::Properties properties_;
  bool plain_ = false;                 ///< but for what a run tells
  mutable Compiled compiled_[2];       ///< rows of any address; rows that begin at multiples of 16 bytes
  mutable Compiled plain_compiled_[2]; ///< of one warp for a tile; of kShares
};

} // namespace

namespace cuda {

int64_t HeadsForm::keys() const { return chunks(depth) + chunks(width) <= 4 ? 32 : 16; }
int64_t HeadsForm::numbers() const { return 4 + 16 * chunks(width); }

std::string HeadsForm::text() const {
  return fmt::format(
      "#define HALF {}\n#define KV {}\n#define MASK {}\n#define OUT {}\n#define DEPTH {}\n"
      "#define WIDTH {}\n#define KEYS {}\n#define SOFTCAP {}\n#define VECTOR {}\n#define CAUSAL {}\n"
      "#define SHARES {}\n#define OVERLAP {}\n{}\n{}\n{}\n{}",
      static_cast<int>(half), static_cast<int>(kv), static_cast<int>(mask), static_cast<int>(out),
      chunks(depth), chunks(width), keys(), softcap ? 1 : 0, vector ? 1 : 0, causal ? 1 : 0,
      std::max(shares, 1), overlap ? 1 : 0, loops_arguments(), kHalfTiles, kParts,
      shares > 0 ? kPlainHeads : kHeads);
}

void spread_heads(HeadsArguments& a, const HeadsForm& form, int64_t batch, int multiprocessors) {
  const AttentionArguments& p = a.problem;
  const int64_t rows = p.heads / p.kv_heads * p.queries, key_tiles = (p.keys + form.keys() - 1) / form.keys();
  if (rows > INT32_MAX - kRows || p.keys > INT32_MAX - 64)
    throw_unsupported("attention of {} rows and {} keys", rows, p.keys);
  a.rows = static_cast<int>(rows);
  a.row_tiles = static_cast<int>((rows + kRows - 1) / kRows);
  a.tiles = batch * p.kv_heads * a.row_tiles;
  if (a.tiles > INT32_MAX - kWarpsOfBlock) throw_unsupported("attention of {} tiles of queries", a.tiles);
  // As many warps as the device has places for, without more than there are tiles of keys.
  const int64_t warps = int64_t{16} * multiprocessors;
  int64_t shares = 1;
  while (shares < kWarpsOfBlock && 2 * shares <= std::max<int64_t>(key_tiles, 1) &&
         2 * shares * a.tiles <= warps)
    shares *= 2;
  a.shares = static_cast<int>(shares);
  a.tiles_of_block = shares >= 4 ? 1 : static_cast<int>(4 / shares);
  // Long caches and few rows: joining the parts of blocks costs a launch, about as much as reading four
  // tiles.
  constexpr int64_t kLeastTiles = 4;
  int64_t splits = 1;
  if (shares == kWarpsOfBlock)
    splits = std::clamp<int64_t>(int64_t{2} * multiprocessors / a.tiles, 1,
                                 std::max<int64_t>(1, key_tiles / kWarpsOfBlock));
  if (key_tiles < kLeastTiles * kWarpsOfBlock) splits = 1;
  a.splits = static_cast<int>(splits);
  a.tiles_of_split = static_cast<int>((key_tiles + splits - 1) / splits);
}

} // namespace cuda

bool has_tensor_cores(const device::Properties& properties) {
  // mma of 16 x 8 x 16, bfloat16; the emulator has them, too
  return !properties.architecture.starts_with("sm_") || architecture_number(properties) >= 80;
}

std::string refuses_tensor_attention(std::span<const OperandInfo> inputs,
                                     std::span<const OperandInfo> outputs) {
  const DType half = inputs[0].dtype;
  if (!is_half(half)) return fmt::format("{} queries", name_of(half));
  auto suits = [&](DType t) { return t == half || t == DType::f32; };
  auto suits_if_given = [&](size_t i) {
    return i >= inputs.size() || inputs[i].dtype == DType::undefined || suits(inputs[i].dtype);
  };
  if (inputs[1].dtype != inputs[2].dtype || !suits(inputs[1].dtype))
    return "keys and values of different types";
  if (!suits_if_given(3)) return "a mask of another type";
  if (!suits_if_given(5)) return "sinks of another type";
  if (!suits(outputs[0].dtype)) return "a result of another type";
  for (const OperandInfo& i : {inputs[0], inputs[2]})
    if (i.sizes[3] < 1 || i.sizes[3] > kWidest)
      return fmt::format("heads wider than {}, or of a width known at run time only", kWidest);
  return {};
}

std::unique_ptr<ExternKernel> make_tensor_attention(device::Device& device, const AttentionProblem& problem,
                                                    std::span<const OperandInfo> inputs,
                                                    std::span<const OperandInfo> outputs, Load load) {
  return std::make_unique<TensorAttention>(device, problem, inputs, outputs, std::move(load));
}

} // namespace tbx::extern_kernels
