#include "extern_kernels/cuda/row_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "extern_kernels/cuda/loop_attention.h"
#include "extern_kernels/cuda/loops.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kRowsText =
#include "extern_kernels/cuda/row_attention.inc"
    ;

constexpr int64_t kWidest = 128; ///< a warp has a key, a thread four of its columns
constexpr int64_t kMostRows = 8;
constexpr int kWarps = 16, kRowsOfTile = 4;
constexpr int kCluster = 8; ///< blocks that share their memory: as many as every GPU that has clusters takes

/// As the text's macros have them.
struct Types {
  DType query, kv, mask = DType::f32, sink = DType::f32, out;
};

Types types_of(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs) {
  Types t{.query = inputs[0].dtype, .kv = inputs[1].dtype, .out = outputs[0].dtype};
  auto given = [&](size_t i) { return inputs.size() > i && inputs[i].dtype != DType::undefined; };
  if (given(3)) t.mask = inputs[3].dtype;
  if (given(5)) t.sink = inputs[5].dtype;
  return t;
}

/// Four columns of each row can be read at once.
bool rows_are_aligned(const TensorRef& t) {
  if (reinterpret_cast<uintptr_t>(t.data) % (4 * size_of(t.dtype)) != 0 || t.sizes[3] % 4 != 0) return false;
  if (t.sizes[3] > 1 && t.strides[3] != 1) return false;
  return std::all_of(t.strides.begin(), t.strides.end() - 1, [](int64_t s) { return s % 4 == 0; });
}

using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

class RowAttention final : public ExternKernel {
public:
  /// `rows`: of queries that share a head of keys; 0: not known yet.
  RowAttention(device::Device& device, const AttentionProblem& p, const Types& types, int64_t depth,
               int64_t width, int64_t rows, Load load)
      : p_(p), types_(types), load_(std::move(load)), properties_(device.properties()),
        has_clusters_(architecture_number(properties_) >= 90) {
    const int64_t threads = (std::max(depth, width) + 3) / 4;
    lanes_ = static_cast<int>(std::clamp<int64_t>(std::bit_ceil(static_cast<uint64_t>(threads)), 8, 32));
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    if (rows > 0) // for the first run
      compiled_for(static_cast<int>(rows), depth % 4 == 0 && width % 4 == 0, has_clusters_);
  }

  std::string description() const override { return "our own " + to_string(Problem(p_)) + " of few rows"; }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    const HeadsArguments a = arguments(inputs, outputs[0]);
    return a.splits == 1 || is_cluster(a) ? 0 : a.tiles * a.splits * bytes_of_part(a.rows);
  }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    HeadsArguments a = arguments(args.inputs, args.outputs[0]);
    if (a.tiles * a.splits > INT32_MAX) throw_unsupported("attention of {} tiles of queries", a.tiles);
    const bool vector = rows_are_aligned(args.inputs[0]) && rows_are_aligned(args.inputs[1]) &&
                        rows_are_aligned(args.inputs[2]);
    const bool cluster = is_cluster(a);
    if (a.splits > 1 && !cluster) a.partial = static_cast<float*>(args.workspace);
    const Compiled& kernels = compiled_for(a.rows, vector, cluster);
    device::LaunchShape shape;
    shape.blocks = static_cast<uint32_t>(a.tiles * a.splits);
    shape.threads = static_cast<uint32_t>(a.shares * 32);
    shape.shared_bytes = static_cast<uint32_t>((a.shares + (cluster ? kCluster : 0)) * bytes_of_part(a.rows));
    void* pointers[] = {&a};
    args.stream->launch(kernels.rows, shape, pointers);
    if (a.splits == 1 || cluster) return;
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

  static int rows_of_tile(int rows) { return rows == 1 ? 1 : kRowsOfTile; }
  /// What a warp, or a block, knows of the rows of a tile.
  int64_t bytes_of_part(int rows) const {
    return int64_t{rows_of_tile(rows)} * (4 * lanes_ + 2) * static_cast<int64_t>(sizeof(float));
  }

  HeadsArguments arguments(std::span<const TensorRef> inputs, const TensorRef& y) const {
    HeadsArguments a;
    a.problem = attention_arguments(p_, inputs, y);
    const AttentionArguments& p = a.problem;
    const int64_t rows = p.heads / p.kv_heads * p.queries;
    if (rows > INT32_MAX - kRowsOfTile || p.keys > INT32_MAX - 64)
      throw_unsupported("attention of {} rows and {} keys", rows, p.keys);
    a.rows = static_cast<int>(rows);
    const int each = rows_of_tile(a.rows);
    a.row_tiles = (a.rows + each - 1) / each;
    a.tiles = inputs[0].sizes[0] * p.kv_heads * a.row_tiles;
    const int64_t key_tiles = std::max<int64_t>(1, (p.keys + 31) / 32);
    // A cluster costs little, so a warp may have a single tile of keys; joining parts of other blocks costs a
    // launch, so there are some for each.
    const int64_t places = properties_.multiprocessors / a.tiles;
    int64_t splits = 1;
    if (has_clusters_ && key_tiles >= kLeastOfCluster && 2 * places >= kCluster)
      splits = kCluster;
    else
      splits = std::clamp<int64_t>(places, 1, std::max<int64_t>(1, key_tiles / (int64_t{2} * kWarps)));
    a.splits = static_cast<int>(splits);
    a.tiles_of_split = static_cast<int>((key_tiles + splits - 1) / splits);
    a.shares = static_cast<int>(std::min<int64_t>(kWarps, is_cluster(a) ? a.tiles_of_split : key_tiles));
    return a;
  }
  bool is_cluster(const HeadsArguments& a) const { return has_clusters_ && a.splits == kCluster; }

  const Compiled& compiled_for(int rows, bool vector, bool cluster) const {
    const int each = rows_of_tile(rows);
    std::scoped_lock lock(mutex_);
    auto [it, fresh] = compiled_.try_emplace({each, vector, cluster});
    if (fresh) {
      it->second.module = load_(fmt::format(
          "#define ROWS {}\n#define LANES {}\n#define VECTOR {}\n#define CLUSTER {}\n#define QUERY {}\n"
          "#define KV {}\n#define MASK {}\n#define SINK {}\n#define OUT {}\n{}\n{}",
          each, lanes_, vector ? 1 : 0, cluster ? kCluster : 1, static_cast<int>(types_.query),
          static_cast<int>(types_.kv), static_cast<int>(types_.mask), static_cast<int>(types_.sink),
          static_cast<int>(types_.out), loops_arguments(), kRowsText));
      it->second.rows = it->second.module->kernel("few_rows");
      it->second.join = it->second.module->kernel("join_rows");
    }
    return it->second;
  }

  static constexpr int64_t kLeastOfCluster = 3; ///< tiles of keys

  AttentionProblem p_;
  Types types_;
  int lanes_ = 0;
  Load load_;
  device::Properties properties_;
  bool has_clusters_;
  mutable std::mutex mutex_;
  /// By the rows of a tile, VECTOR, and whether there are clusters.
  mutable std::map<std::tuple<int, bool, bool>, Compiled> compiled_;
};

} // namespace

std::string refuses_row_attention(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs) {
  auto suits = [](DType t) { return t == DType::f32 || is_half(t); };
  for (size_t i : {0, 1, 2, 3, 5})
    if (i < inputs.size() && !suits(inputs[i].dtype) && (i < 3 || inputs[i].dtype != DType::undefined))
      return fmt::format("{} operands", name_of(inputs[i].dtype));
  if (inputs[1].dtype != inputs[2].dtype) return "keys and values of different types";
  if (!suits(outputs[0].dtype)) return fmt::format("a result of {}", name_of(outputs[0].dtype));
  for (const OperandInfo& i : {inputs[0], inputs[2]})
    if (i.sizes[3] < 1 || i.sizes[3] > kWidest)
      return fmt::format("heads wider than {}, or of a width known at run time only", kWidest);
  return {};
}

bool suits_row_attention(std::span<const TensorRef> inputs) {
  const int64_t heads = inputs[0].sizes[1], shared = inputs[1].sizes[1];
  return shared > 0 && heads % shared == 0 && heads / shared * inputs[0].sizes[2] <= kMostRows;
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
