#include "extern_kernels/cuda/row_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>

#include "base/error.h"
#include "extern_kernels/cuda/loop_attention.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/launched_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kRowsText =
#include "extern_kernels/cuda/row_attention.inc"
    ;

constexpr int64_t kWidest = 128; ///< a warp has a key, a thread four of its columns
constexpr int64_t kMostRows = 8;
constexpr int kWarps = 16, kRowsOfTile = 4;
/// Inputs of a call that appends.
constexpr size_t kNewKeys = AttentionProblem::kCacheKeys, kNewValues = AttentionProblem::kCacheValues,
                 kCosines = AttentionProblem::kCosines, kSines = AttentionProblem::kSines;
constexpr int kTogether = 8; ///< loads of a thread that are on their way, as the text has it
constexpr int kCluster = 8;  ///< blocks that share their memory: as many as every GPU that has clusters takes

/// As the text's macros have them.
struct Types {
  DType query, kv, mask = DType::f32, sink = DType::f32, out, appended = DType::undefined,
                   cosines = DType::f32;
  int64_t turns = 0; ///< cosines of a head
};

Types types_of(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs) {
  Types t{.query = inputs[0].dtype, .kv = inputs[1].dtype, .out = outputs[0].dtype};
  auto given = [&](size_t i) { return inputs.size() > i && inputs[i].dtype != DType::undefined; };
  if (given(3)) t.mask = inputs[3].dtype;
  if (given(5)) t.sink = inputs[5].dtype;
  if (given(kNewKeys)) t.appended = inputs[kNewKeys].dtype;
  if (given(kCosines)) t.cosines = inputs[kCosines].dtype, t.turns = inputs[kCosines].sizes[1];
  return t;
}

/// Of a type that nothing is rounded to, which is that of the sums.
int number_of(DType type) { return static_cast<int>(type == DType::undefined ? DType::f32 : type); }

Table table_of(const TensorRef& t) {
  return {t.data, {t.sizes[0] == 1 ? 0 : t.strides[0], t.sizes[1] == 1 ? 0 : t.strides[1]}};
}

/// Four elements of a head have partners and numbers beside each other.
bool turns_by_fours(const HeadRotation& r) { return r.width % (r.interleaved ? 4 : 8) == 0; }
bool is_aligned(const Table& t, DType type) {
  return reinterpret_cast<uintptr_t>(t.data) % (4 * size_of(type)) == 0 && t.strides[0] % 4 == 0 &&
         t.strides[1] == 1;
}

/// Four columns of each row can be read at once.
bool rows_are_aligned(const TensorRef& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % (4 * size_of(t.dtype)) != 0 || t.sizes[3] % 4 != 0) return false;
  if (t.sizes[3] > 1 && t.strides[3] != 1) return false;
  return std::all_of(t.strides.begin(), t.strides.end() - 1, [](int64_t s) { return s % 4 == 0; });
}

using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

class RowAttention final : public LaunchedKernel {
public:
  /// `rows`: of queries that share a head of keys; 0: not known yet.
  RowAttention(device::Device& device, const AttentionProblem& p, const Types& types, int64_t depth,
               int64_t width, int64_t rows, Load load)
      : p_(p), types_(types), depth_(depth), width_(width), load_(std::move(load)),
        properties_(device.properties()), has_clusters_(has_clusters(properties_)) {
    const int64_t threads = (std::max(depth, width) + 3) / 4;
    lanes_ = static_cast<int>(std::clamp<int64_t>(std::bit_ceil(static_cast<uint64_t>(threads)), 8, 32));
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    if (rows > 0) // for the first run
      compiled_for({rows == 1 ? 1 : kRowsOfTile,
                    depth % 4 == 0 && width % 4 == 0 && turns_by_fours(p_.rotation), has_clusters_, 1});
  }

  std::string description() const override { return "our own " + to_string(Problem(p_)) + " of few rows"; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    const Call call = call_of(inputs, outputs[0]);
    const HeadsArguments& a = call.arguments;
    return a.splits == 1 || call.form.cluster ? 0 : a.tiles * a.splits * bytes_of_part(call.form.rows);
  }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    auto [a, form] = call_of(args.inputs, args.outputs[0]);
    if (a.tiles * a.splits > INT32_MAX) throw_unsupported("attention of {} tiles of queries", a.tiles);
    form.vector = rows_are_aligned(args.inputs[0]) && rows_are_aligned(args.inputs[1]) &&
                  rows_are_aligned(args.inputs[2]);
    if (p_.appends) {
      form.vector =
          form.vector && rows_are_aligned(args.inputs[kNewKeys]) && rows_are_aligned(args.inputs[kNewValues]);
      a.new_k = heads_view_of(args.inputs[kNewKeys], args.inputs[kNewKeys].sizes);
      a.new_v = heads_view_of(args.inputs[kNewValues], args.inputs[kNewValues].sizes);
    }
    if (p_.rotation.width > 0) {
      const TensorRef& numbers = args.inputs[kCosines];
      a.cosines = table_of(numbers), a.sines = table_of(args.inputs[kSines]);
      form.vector = form.vector && turns_by_fours(p_.rotation) && is_aligned(a.cosines, numbers.dtype) &&
                    is_aligned(a.sines, numbers.dtype);
    }
    if (a.splits > 1 && !form.cluster) a.partial = static_cast<float*>(args.workspace);
    const Compiled& kernels = compiled_for(form);
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(a.tiles * a.splits);
    shape.threads = static_cast<uint32_t>(a.shares * 32);
    shape.overlap = begins_early(properties_);
    shape.shared_bytes =
        static_cast<uint32_t>((a.shares + (form.cluster ? kCluster : 0)) * bytes_of_part(form.rows));
    void* pointers[] = {&a};
    args.stream->launch(kernels.rows, shape, pointers);
    if (a.splits == 1 || form.cluster) return;
    shape.blocks = static_cast<uint32_t>(a.tiles);
    shape.threads = 256;
    shape.shared_bytes = 0;
    args.stream->launch(kernels.join, shape, pointers);
  }

private:
  struct Compiled {
    std::shared_ptr<device::Module> module;
    device::Kernel rows, join;
  };

  /// What there is a text for.
  struct Form {
    int rows = 1; ///< of a tile
    bool vector = false, cluster = false;
    int batches = 1; ///< of loads that a warp has of a tile of keys
    auto
    operator<=>(const Form&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
  };
  struct Call {
    HeadsArguments arguments;
    Form form; ///< but for `vector`
  };

  /// What a warp, or a block, knows of the rows of a tile.
  int64_t bytes_of_part(int rows) const {
    return int64_t{rows} * (4 * lanes_ + 2) * static_cast<int64_t>(sizeof(float));
  }

  Call call_of(std::span<const TensorRef> inputs, const TensorRef& y) const {
    Call call;
    HeadsArguments& a = call.arguments;
    a.problem = attention_arguments(p_, inputs, y);
    const AttentionArguments& p = a.problem;
    const int64_t rows = p.heads / p.kv_heads * p.queries;
    if (rows > INT32_MAX - kRowsOfTile || p.keys > INT32_MAX - 64)
      throw_unsupported("attention of {} rows and {} keys", rows, p.keys);
    a.rows = static_cast<int>(rows);
    // Warps take long for several rows, so these share warps only where one for each would not fit beside the
    // others.
    const int64_t groups = inputs[0].sizes[0] * p.kv_heads;
    const int each = rows == 1 || groups * rows * kCluster <= properties_.multiprocessors ? 1 : kRowsOfTile;
    a.row_tiles = (a.rows + each - 1) / each;
    a.tiles = groups * a.row_tiles;
    // A warp has one batch of loads of keys at a time where that leaves few tiles for each.
    const int64_t own = p_.appends ? 1 : 0, keys = p.keys - own; // one has a warp for itself
    const int64_t all_batches = lanes_ / kTogether, small = 32 / all_batches,
                  small_tiles = std::max<int64_t>(1, (keys + small - 1) / small);
    // A cluster is worth its two meetings where a block's own warps have more than a tile each; joining parts
    // of other blocks costs a launch, so there are some tiles for each warp.
    const int64_t places = properties_.multiprocessors / a.tiles;
    call.form.cluster = has_clusters_ && small_tiles > kWarps && 2 * places >= kCluster;
    const int64_t key_tiles = std::max<int64_t>(1, (keys + 31) / 32);
    a.splits = static_cast<int>(
        call.form.cluster
            ? int64_t{kCluster}
            : std::clamp<int64_t>(places, 1, std::max<int64_t>(1, key_tiles / (int64_t{2} * kWarps))));
    const int64_t most = call.form.cluster && !p_.appends ? kMostSmall : kWarps - own;
    const bool is_small = small_tiles <= most * a.splits;
    const int64_t tiles = is_small ? small_tiles : key_tiles;
    call.form.rows = each;
    call.form.batches = static_cast<int>(is_small ? 1 : all_batches);
    a.tiles_of_split = static_cast<int>((tiles + a.splits - 1) / a.splits);
    a.shares = static_cast<int>(std::min<int64_t>(threads_of(call.form) / 32, a.tiles_of_split + own));
    return call;
  }

  /// At most, of a block: threads whose loads have registers of their own are fewer.
  int threads_of(const Form& form) const { return p_.appends && form.batches == 2 ? 320 : kWarps * 32; }

  const Compiled& compiled_for(const Form& form) const {
    std::scoped_lock lock(mutex_);
    auto [it, fresh] = compiled_.try_emplace(form);
    if (fresh) {
      auto number = [](auto value) { return static_cast<int>(value); };
      it->second.module = load_(fmt::format(
          "#define ROWS {}\n#define LANES {}\n#define BATCHES {}\n#define VECTOR {}\n#define CLUSTER {}\n"
          "#define QUERY {}\n#define KV {}\n#define MASK {}\n#define SINK {}\n#define OUT {}\n#define "
          "OVERLAP {}\n"
          "#define DEPTH {}\n#define WIDTH {}\n#define MASKED {}\n#define CAUSAL {}\n#define STARTS {}\n"
          "#define WINDOW {}\n#define SINKS {}\n#define SOFTCAP {}\n#define ZEROS {}\n#define APPENDS {}\n"
          "#define THREADS {}\n{}{}\n{}",
          form.rows, lanes_, form.batches, number(form.vector), form.cluster ? kCluster : 1,
          number(types_.query), number(types_.kv), number(types_.mask), number(types_.sink),
          number(types_.out), number(begins_early(properties_)), depth_, width_, number(p_.has_mask),
          number(p_.causal), number(p_.has_starts), number(p_.window > 0), number(p_.has_sinks),
          number(p_.softcap > 0), number(p_.zero_undefined_rows), number(types_.appended), threads_of(form),
          rotation_text(), loops_arguments(), kRowsText));
      it->second.rows = it->second.module->kernel("few_rows");
      it->second.join = it->second.module->kernel("join_rows");
    }
    return it->second;
  }

  std::string rotation_text() const {
    const HeadRotation& r = p_.rotation;
    if (r.width == 0) return "#define ROTATED 0\n";
    return fmt::format("#define ROTATED {}\n#define PAIRS {}\n#define TURNS {}\n#define COSINES {}\n#define "
                       "ROUNDED {}\n#define TURNED_QUERY {}\n#define TURNED_KEY {}\n",
                       r.width, r.interleaved ? 1 : 0, types_.turns, number_of(types_.cosines),
                       number_of(r.rounded), number_of(r.queries), number_of(r.keys));
  }

  static constexpr int64_t kMostSmall = 12; ///< tiles of one batch that a block of a cluster has at most

  AttentionProblem p_;
  Types types_;
  int64_t depth_, width_;
  int lanes_ = 0;
  Load load_;
  device::Properties properties_;
  bool has_clusters_;
  mutable std::mutex mutex_;
  mutable std::map<Form, Compiled> compiled_;
};

} // namespace

std::string refuses_row_attention(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs) {
  auto suits = [](DType t) { return t == DType::f32 || is_half(t); };
  for (size_t i : std::initializer_list<size_t>{0, 1, 2, 3, 5, kNewKeys, kNewValues, kCosines, kSines})
    if (i < inputs.size() && !suits(inputs[i].dtype) && (i < 3 || inputs[i].dtype != DType::undefined))
      return fmt::format("{} operands", name_of(inputs[i].dtype));
  if (inputs[1].dtype != inputs[2].dtype) return "keys and values of different types";
  if (!suits(outputs[0].dtype)) return fmt::format("a result of {}", name_of(outputs[0].dtype));
  if (inputs.size() > kNewValues && inputs[kNewKeys].dtype != inputs[kNewValues].dtype)
    return "new keys and values of different types";
  if (inputs.size() > kSines && inputs[kCosines].dtype != inputs[kSines].dtype)
    return "cosines and sines of different types";
  for (const OperandInfo& i : {inputs[0], inputs[2]})
    if (i.sizes[3] < 1 || i.sizes[3] > kWidest)
      return fmt::format("heads wider than {}, or of a width known at run time only", kWidest);
  return {};
}

bool suits_row_attention(int64_t heads, int64_t kv_heads, int64_t queries) {
  return kv_heads > 0 && heads % kv_heads == 0 && heads / kv_heads * queries <= kMostRows;
}

std::unique_ptr<ExternKernel> make_row_attention(device::Device& device, const AttentionProblem& problem,
                                                 std::span<const OperandInfo> inputs,
                                                 std::span<const OperandInfo> outputs, Load load) {
  const int64_t heads = inputs[0].sizes[1], shared = inputs[1].sizes[1], queries = inputs[0].sizes[2];
  const int64_t rows = heads > 0 && shared > 0 && queries > 0 ? heads / shared * queries : 0;
  return std::make_unique<RowAttention>(device, problem, types_of(inputs, outputs), inputs[0].sizes[3],
                                        inputs[2].sizes[3], rows <= kMostRows ? rows : 0, std::move(load));
}

} // namespace tbx::extern_kernels
