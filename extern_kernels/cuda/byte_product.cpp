#include "extern_kernels/cuda/byte_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "base/rounding.h"
#include "base/side_by_side.h"
#include "base/strides.h"
#include "extern_kernels/cuda/byte_rows.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/notes.h"
#include "extern_kernels/cuda/plain.h"
#include "extern_kernels/cuda/tensor_attention.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kEarlyStart =
#include "extern_kernels/cuda/early_start.inc"
    ;

const char* const kSteps =
#include "extern_kernels/cuda/byte_steps.inc"
    ;

const char* const kText =
#include "extern_kernels/cuda/byte_product.inc"
    ;

constexpr int64_t kTile = 64;  ///< rows and columns of a block, and terms that it multiplies at a time
constexpr int64_t kJoined = 8; ///< rows of a block that joins
constexpr int64_t kRound = 16; ///< packed columns are padded to that
constexpr size_t kOuter = 3;   ///< dimensions of a batch, or of an image

using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

int64_t volume(std::span<const int64_t> sizes) {
  int64_t v = 1;
  for (int64_t s : sizes) v *= s;
  return v;
}
int as_int(int64_t n) { return static_cast<int>(n); }

/// Channels of a tap in a packed column: images of few channels keep their taps close.
int64_t packed_depth(int64_t depth, int64_t taps) {
  if (taps > 1 && depth <= 4) return 4;
  if (taps > 1 && depth <= 8) return 8;
  return round_up(depth, kRound);
}

/// The sizes of a call, and how its operands lie.
struct Call {
  ByteArguments product;
  ByteWeights weights;
  bool fits = true; ///< all counts are of 32 bits
};

class ByteProduct final : public LibraryKernel {
public:
  ByteProduct(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
              std::span<const OperandInfo> outputs, Load load, int multiprocessors)
      : problem_(problem), conv_(std::get_if<ConvProblem>(&problem_)),
        product_(std::get_if<MatMulProblem>(&problem_)), device_(device), load_(std::move(load)),
        multiprocessors_(multiprocessors > 0 ? multiprocessors : device.properties().multiprocessors),
        has_clusters_(!load_ && has_clusters(device.properties())), a_type_(inputs[0].dtype),
        result_type_(outputs[0].dtype), w_(inputs[1]),
        plain_(conv_ ? make_cuda_conv : make_cuda_matmul, device, problem, inputs, outputs) {
    for (const PostOp& op : post_ops())
      if (op.operand >= 0) read_types_ |= 1u << static_cast<int>(inputs[op.operand].dtype);
    const bool given = load_ != nullptr;
    if (!given) load_ = [&device](const std::string& text) { return loaded(device, text); };
    if (w_.constant && (!conv_ || !conv_->has_bias || inputs[2].constant)) {
      ByteRows::Ends ends{a_type_, w_.dtype, result_type_, post_ops(), {}, is_known(inputs[0])};
      for (const PostOp& op : post_ops())
        ends.operands.push_back(op.operand >= 0 ? inputs[op.operand].dtype : DType::undefined);
      rows_ = std::make_unique<ByteRows>(device, std::move(ends), load_, multiprocessors_, has_clusters_);
    }
    if (!given) compile_ahead(inputs, outputs);
  }

  std::string description() const override {
    return fmt::format("our own {} on tensor cores in {} and {}", to_string(problem_), name_of(a_type_),
                       name_of(w_.dtype));
  }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    const Call call = make_call(inputs, outputs[0]);
    if (!call.fits) return 0;
    return std::max(partial_bytes(call), laid_bytes(call, inputs[1].sizes)) +
           (w_.constant ? 0 : packed_bytes(call));
  }

  bool can_rehearse() const override { return true; }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    Call call = make_call(args.inputs, args.outputs[0]);
    if (!call.fits) {
      notes_.add("plain loops: more rows, columns or terms than 32 bits count");
      return plain_.get().run(args);
    }
    ByteArguments& a = call.product;
    auto* workspace = static_cast<char*>(args.workspace);
    if (w_.constant) {
      std::scoped_lock lock(mutex_);
      if (!packed_) pack_constant(call);
      place_weights(call, static_cast<char*>(packed_->data()));
    } else {
      call.weights.from = args.inputs[1].data;
      place_weights(call, workspace);
      pack(*args.stream, call);
      workspace += packed_bytes(call);
    }
    const bool vector = is_vector(call, args.inputs[0].data);
    const bool windows = has_window(args.inputs[1].sizes);
    const bool laid = laid_bytes(call, args.inputs[1].sizes) > 0;
    if (const auto work = few_rows(call, vector, windows, laid ? workspace : nullptr)) {
      notes_.add(
          fmt::format("[{} x {} x {}] of few rows{}", a.rows, a.terms, a.columns, laid ? ", laid out" : ""));
      if (laid) lay(*args.stream, call, windows, workspace);
      return rows_->run(*args.stream, *work);
    }
    a.partial = reinterpret_cast<int*>(workspace);
    device::LaunchShape shape;
    shape.threads = 128;
    shape.blocks = static_cast<uint32_t>(blocks_of(a) * a.splits);
    if (has_clusters_) shape.cluster = static_cast<uint32_t>(a.splits);
    shape.overlap = begins_early(device_.properties()) && shape.blocks <= device::kMostEarlyBlocks;
    void* pointers[] = {&a};
    args.stream->launch(product_kernel(vector, windows), shape, pointers);
    notes_.add(fmt::format("[{} x {} x {} x {}]{}{}", a.groups, a.rows, a.terms, a.columns,
                           vector ? "" : ", bytes one by one",
                           a.splits > 1 ? fmt::format(", terms shared by {} blocks", a.splits) : ""));
    if (a.splits == 1 || has_clusters_) return;
    shape.blocks = static_cast<uint32_t>(a.groups * ceil_div<int64_t>(a.rows, kJoined) * a.column_tiles);
    shape.overlap = false;
    args.stream->launch(join_kernel(), shape, pointers);
  }

  int64_t packed_bytes() const override {
    std::scoped_lock lock(mutex_);
    return packed_ ? static_cast<int64_t>(packed_->bytes()) : 0;
  }
  std::vector<std::string> implementations() const override { return notes_.all(); }

private:
  /// A text for some form of operand a.
  struct Compiled {
    std::once_flag once;
    std::shared_ptr<device::Module> module;
    device::Kernel kernel;
  };
  enum Part : uint8_t { tiles, others, laying };

  /// `laid`: where rows are laid out; nullptr: they are read where they lie.
  std::optional<ByteRows::Work> few_rows(const Call& call, bool vector, bool windows,
                                         const void* laid) const {
    if (!rows_ || (!vector && !laid)) return std::nullopt;
    if (!laid) return rows_->work_of(call.product, windows);
    ByteArguments a = call.product;
    a.a = laid;
    long long step = a.depth = a.packed_depth = a.packed_terms;
    for (int d = 3; d >= 0; --d) a.a_row[d] = step, step *= a.row_sizes[d];
    return rows_->work_of(a, false);
  }

  /// Of the rows of a convolution, where they are to be laid out for a product of few rows: a few bytes of a
  /// tap are dear to read each time that a tile wants them.
  int64_t laid_bytes(const Call& call, std::span<const int64_t> w) const {
    const ByteArguments& a = call.product;
    if (!rows_ || !conv_ || a.groups != 1) return 0;
    if (is_vector(call, nullptr) && (!has_window(w) || a.depth % ByteRows::kChunk == 0)) return 0;
    if (!rows_->pays(a.rows, a.columns, a.packed_terms)) return 0;
    return int64_t{a.rows} * a.packed_terms;
  }
  void lay(device::Stream& stream, Call& call, bool windows, void* at) const {
    device::LaunchShape shape;
    shape.threads = 128;
    shape.blocks = static_cast<uint32_t>(
        ceil_div(int64_t{call.product.rows} * (call.product.packed_terms / kRound), 128));
    shape.overlap = begins_early(device_.properties()) && shape.blocks <= device::kMostEarlyBlocks;
    void* pointers[] = {&call.product, &at};
    stream.launch(laying_kernel(windows), shape, pointers);
  }

  /// Not each pixel of the result is one pixel of the image. `w`: sizes of the weights.
  bool has_window(std::span<const int64_t> w) const {
    auto any = [](std::span<const int64_t> v, int64_t other) {
      return std::any_of(v.begin(), v.end(), [&](int64_t n) { return n != other; });
    };
    return conv_ && (any(w.subspan(2), 1) || any(conv_->pads_begin, 0) || any(conv_->pads_end, 0));
  }

  static int64_t blocks_of(const ByteArguments& a) {
    return int64_t{a.row_tiles} * a.column_tiles * a.groups;
  }
  static int64_t sums_bytes(const Call& call) { return round_up(call.weights.all_columns * 4, 256); }
  static int64_t packed_bytes(const Call& call) {
    return sums_bytes(call) + round_up(call.weights.all_columns * call.weights.packed_terms, 256);
  }
  int64_t partial_bytes(const Call& call) const {
    const ByteArguments& a = call.product;
    return a.splits == 1 || has_clusters_ ? 0 : int64_t{a.splits} * a.groups * a.rows * a.columns * 4;
  }
  static void place_weights(Call& call, char* at) {
    call.product.sums = call.weights.sums = reinterpret_cast<int*>(at);
    call.product.w = call.weights.to = at + sums_bytes(call);
  }

  Call make_call(std::span<const TensorRef> inputs, const TensorRef& out) const {
    Call call;
    ByteArguments& a = call.product;
    a.a = inputs[0].data;
    if (conv_)
      describe_conv(call, inputs, out);
    else
      describe_product(call, inputs, out);
    auto zero = [&](int number) {
      return number >= 0 ? static_cast<const int*>(inputs[number].data) : nullptr;
    };
    a.a_zero = zero(conv_ ? conv_->x_zero : product_->a_zero);
    a.b_zero = zero(conv_ ? -1 : product_->b_zero);
    const int64_t rows = volume_of(a.row_sizes, 4), groups = volume_of(a.group_sizes, 3);
    const int64_t taps = volume_of(a.kernel, 3), depth = call.weights.depth;
    const int64_t padded = packed_depth(depth, taps), terms = round_up(taps * padded, kRound);
    constexpr int64_t kMost = std::numeric_limits<int>::max() - 64 * kTile;
    const int64_t columns = call.weights.columns, all = call.weights.all_columns;
    const int64_t row_tiles = ceil_div(rows, kTile), column_tiles = ceil_div(columns, kTile);
    for (int64_t n : {rows, groups, terms, columns, all, row_tiles * column_tiles * groups * kTile / kJoined})
      call.fits = call.fits && n <= kMost;
    if (!call.fits) return call;
    a.rows = as_int(rows), a.groups = as_int(groups), a.columns = as_int(columns);
    a.terms = as_int(taps * depth), a.depth = as_int(depth);
    a.packed_depth = call.weights.packed_depth = as_int(padded);
    a.packed_terms = call.weights.packed_terms = as_int(terms);
    call.weights.taps = as_int(taps);
    std::copy_n(a.kernel, 3, call.weights.kernel);
    a.row_tiles = as_int(row_tiles), a.column_tiles = as_int(column_tiles);
    share_terms(a);
    return call;
  }

  /// Where there are fewer blocks than places for them, several share the terms of a tile. To join their sums
  /// costs about as much as four tiles of terms, and within a cluster, which has a power of two of blocks, as
  /// one.
  void share_terms(ByteArguments& a) const {
    const int64_t fewest = has_clusters_ ? 3 : 6;
    const int64_t tiles = std::max<int64_t>(1, ceil_div<int64_t>(a.packed_terms, kTile));
    const int64_t places = int64_t{2} * multiprocessors_;
    int64_t splits = std::clamp<int64_t>(places / std::max<int64_t>(1, blocks_of(a)), 1,
                                         std::max<int64_t>(1, tiles / fewest));
    if (has_clusters_)
      splits = static_cast<int64_t>(
          std::bit_floor(static_cast<uint64_t>(std::min<int64_t>(splits, kLargestCluster))));
    a.tiles_of_split = as_int((tiles + splits - 1) / splits);
    // A block of a cluster may have no terms.
    a.splits = as_int(has_clusters_ ? splits : (tiles + a.tiles_of_split - 1) / a.tiles_of_split);
    if (blocks_of(a) * a.splits > std::numeric_limits<int>::max())
      a.splits = 1, a.tiles_of_split = as_int(tiles);
  }

  static int64_t volume_of(const int* sizes, int count) {
    int64_t v = 1;
    for (int i = 0; i < count; ++i) v *= sizes[i];
    return v;
  }

  /// Rows are pixels, columns the channels of a group.
  void describe_conv(Call& call, std::span<const TensorRef> inputs, const TensorRef& y) const {
    const ConvProblem& p = *conv_;
    const TensorRef &x = inputs[0], &w = inputs[1];
    ByteArguments& a = call.product;
    ByteWeights& b = call.weights;
    const size_t space = y.sizes.size() - 2, from = kOuter - space; // the last of three dimensions
    const int64_t columns = y.sizes[1] / p.group;
    a.row_sizes[0] = as_int(y.sizes[0]);
    a.a_row[0] = x.strides[0];
    for (size_t d = 0; d < space; ++d) {
      const size_t to = from + d;
      a.row_sizes[1 + to] = as_int(y.sizes[2 + d]);
      a.a_row[1 + to] =
          x.strides[2 + d] * (has_window(w.sizes) ? 1 : p.strides[d]); // steps of the image, or of rows
      a.in[to] = as_int(x.sizes[2 + d]), a.kernel[to] = as_int(w.sizes[2 + d]);
      a.stride[to] = as_int(p.strides[d]), a.dilation[to] = as_int(p.dilations[d]);
      a.pad[to] = as_int(p.pads_begin[d]);
      b.kernel_steps[to] = w.strides[2 + d];
    }
    a.a_step = x.strides[1];
    a.group_sizes[0] = b.group_sizes[0] = as_int(p.group);
    a.a_group[0] = w.sizes[1] * x.strides[1];
    a.w_group[0] = 1;
    b.group_steps[0] = columns * w.strides[0];
    b.column_step = w.strides[0], b.depth_step = w.strides[1];
    b.columns = as_int(columns), b.all_columns = y.sizes[1], b.depth = as_int(w.sizes[1]);
    auto ordered = [&](const View& from_view, int64_t group) {
      View v = from_view;
      std::fill(std::begin(v.strides), std::end(v.strides), 0);
      v.strides[0] = from_view.strides[0];
      for (size_t d = 0; d < space; ++d) v.strides[1 + from + d] = from_view.strides[2 + d];
      v.strides[4] = from_view.strides[1];
      v.strides[5] = from_view.strides[1] * group;
      return v;
    };
    a.out = ordered(view_of(y, y.sizes), columns);
    if (p.has_bias) {
      a.bias.data = inputs[2].data, a.bias.type = static_cast<int>(inputs[2].dtype);
      a.bias.strides[4] = inputs[2].strides[0];
      a.bias.strides[5] = columns * inputs[2].strides[0];
    }
    a.post = steps_of(p.post_ops, inputs, y.sizes);
    for (int i = 0; i < a.post.count; ++i)
      a.post.steps[i].operand = ordered(a.post.steps[i].operand, columns);
  }

  /// Dimensions of the batch are rows where b has none, else groups.
  void describe_product(Call& call, std::span<const TensorRef> inputs, const TensorRef& c) const {
    const TensorRef &x = inputs[0], &w = inputs[1];
    ByteArguments& a = call.product;
    ByteWeights& b = call.weights;
    const size_t rank = c.sizes.size(), outer = rank - 2, from = kOuter - outer;
    const bool batched = volume(w.sizes.first(outer)) != 1;
    a.row_sizes[3] = as_int(c.sizes[rank - 2]);
    a.a_row[3] = x.strides[rank - 2];
    a.a_step = x.strides[rank - 1];
    b.column_step = w.strides[rank - 1], b.depth_step = w.strides[rank - 2];
    b.columns = as_int(c.sizes[rank - 1]), b.depth = as_int(x.sizes[rank - 1]);
    int64_t packed = 1;
    for (size_t d = outer; d-- > 0;) {
      const size_t to = from + d;
      (batched ? a.group_sizes : a.row_sizes)[to] = as_int(c.sizes[d]);
      (batched ? a.a_group : a.a_row)[to] = x.sizes[d] == 1 ? 0 : x.strides[d];
      if (!batched || w.sizes[d] == 1) continue;
      b.group_sizes[to] = as_int(w.sizes[d]), b.group_steps[to] = w.strides[d];
      a.w_group[to] = as_int(packed);
      packed *= w.sizes[d];
    }
    b.all_columns = packed * c.sizes[rank - 1];
    auto ordered = [&](const View& from_view) {
      View v = from_view;
      std::fill(std::begin(v.strides), std::end(v.strides), 0);
      for (size_t d = 0; d < outer; ++d) v.strides[(batched ? 5 : 0) + from + d] = from_view.strides[d];
      v.strides[3] = from_view.strides[rank - 2], v.strides[4] = from_view.strides[rank - 1];
      return v;
    };
    a.out = ordered(view_of(c, c.sizes));
    a.post = steps_of(product_->post_ops, inputs, c.sizes);
    for (int i = 0; i < a.post.count; ++i) a.post.steps[i].operand = ordered(a.post.steps[i].operand);
  }

  /// 16 terms that follow each other are 16 aligned bytes of one tap.
  static bool is_vector(const Call& call, const void* data) {
    const ByteArguments& a = call.product;
    bool fits = a.depth % kRound == 0 && a.a_step == 1 && reinterpret_cast<uintptr_t>(data) % kRound == 0;
    for (int64_t step : a.a_row) fits = fits && step % kRound == 0;
    for (int64_t step : a.a_group) fits = fits && step % kRound == 0;
    return fits;
  }

  const std::vector<PostOp>& post_ops() const { return conv_ ? conv_->post_ops : product_->post_ops; }

  /// What the end of a tile has to know.
  std::string macros_of_end() const {
    unsigned kinds = 0;
    for (const PostOp& op : post_ops()) kinds |= 1u << op.kind;
    return fmt::format("#define KINDS {}\n#define READS {}\n#define RESULT {}\n", kinds, read_types_,
                       static_cast<int>(result_type_));
  }

  std::string text_of(Part part, bool vector, bool taps) const {
    return fmt::format(
        "#define PART {}\n#define A_SIGNED {}\n#define B_SIGNED {}\n#define VECTOR {}\n#define TAPS {}\n"
        "#define CLUSTERS {}\n#define OVERLAP {}\n{}{}\n{}{}{}",
        static_cast<int>(part), a_type_ == DType::i8 ? 1 : 0, w_.dtype == DType::i8 ? 1 : 0, vector ? 1 : 0,
        taps ? 1 : 0, has_clusters_ ? 1 : 0, begins_early(device_.properties()) ? 1 : 0, macros_of_end(),
        loops_arguments(), kEarlyStart, kSteps, kText);
  }
  const device::Kernel& compiled(Compiled& c, Part part, const char* name, bool vector, bool taps) const {
    std::call_once(c.once, [&] {
      c.module = load_(text_of(part, vector, taps));
      c.kernel = c.module->kernel(name);
    });
    return c.kernel;
  }
  const device::Kernel& product_kernel(bool vector, bool taps) const {
    return compiled(products_[vector][taps], tiles, "byte_product", vector, taps);
  }
  const device::Kernel& pack_kernel() const { return compiled(pack_, others, "pack_bytes", false, false); }
  const device::Kernel& join_kernel() const { return compiled(join_, others, "join_bytes", false, false); }
  const device::Kernel& laying_kernel(bool windows) const {
    return compiled(laying_[windows], laying, "lay_bytes", false, windows);
  }

  static bool is_known(const OperandInfo& o) {
    return o.dtype == DType::undefined ||
           std::none_of(o.sizes.begin(), o.sizes.end(), [](int64_t n) { return n < 0; });
  }
  /// Of sizes that come with the run: one image, or one sequence of middle length. Those of an image itself
  /// stay unknown.
  void make_likely(OperandInfo& o) const {
    constexpr int64_t kLength = 128;
    for (size_t d = 0; d < o.sizes.size(); ++d) {
      if (o.sizes[d] >= 0) continue;
      if (product_)
        o.sizes[d] = d + 2 == o.sizes.size() ? kLength : 1;
      else if (d == 0)
        o.sizes[d] = 1;
    }
    if (is_known(o) && o.dtype != DType::undefined && o.strides.empty())
      o.strides = row_major_strides(o.sizes);
  }

  /// What the first run will most likely want; it compiles what it lacks. At the same time: each text takes
  /// as long as all texts of most models.
  void compile_ahead(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs) const {
    rethrow_first(side_by_side(2, [&](size_t i) {
      if (i == 0) return void(pack_kernel());
      if (!is_known(w_)) return;
      const bool windows = has_window(w_.sizes);
      std::vector<OperandInfo> likely(inputs.begin(), inputs.end());
      likely.push_back(outputs[0]);
      for (OperandInfo& o : likely) make_likely(o);
      if (std::all_of(likely.begin(), likely.end(), is_known)) {
        std::vector<TensorRef> in;
        in.reserve(likely.size());
        for (const OperandInfo& o : likely)
          in.push_back({nullptr, o.dtype, o.sizes, o.strides}); // as if at the best address
        const TensorRef out = in.back();
        in.pop_back();
        if (out.numel() == 0) return;
        const Call call = make_call(in, out);
        if (!call.fits) return;
        alignas(16) static const char anywhere = 0;
        const bool laid = laid_bytes(call, w_.sizes) > 0;
        if (laid) laying_kernel(windows);
        if (const auto work = few_rows(call, is_vector(call, nullptr), windows, laid ? &anywhere : nullptr))
          return rows_->compile(*work);
      }
      const int64_t depth = conv_ ? w_.sizes[1] : w_.sizes[w_.sizes.size() - 2];
      const size_t terms = conv_ ? 1 : inputs[0].sizes.size() - 1; // the dimension of x that is summed over
      const bool follow = inputs[0].strides.empty() || inputs[0].strides[terms] == 1;
      product_kernel(depth % kRound == 0 && follow, windows);
    }));
  }

  void pack(device::Stream& stream, Call& call) const {
    if (call.weights.all_columns == 0) return;
    device::LaunchShape shape;
    shape.threads = 128;
    shape.blocks = static_cast<uint32_t>(ceil_div(call.weights.all_columns, 4));
    void* pointers[] = {&call.weights};
    stream.launch(pack_kernel(), shape, pointers);
  }

  /// Once per kernel, whatever streams runs have.
  void pack_constant(const Call& call) const {
    Call mine = call;
    const auto bytes = static_cast<size_t>(volume(w_.sizes));
    auto from = device_.allocate(bytes), packed = device_.allocate(static_cast<size_t>(packed_bytes(call)));
    place_weights(mine, static_cast<char*>(packed->data()));
    mine.weights.from = from->data();
    const auto stream = device_.make_stream();
    stream->upload(from->data(), w_.constant->data, bytes);
    pack(*stream, mine);
    stream->synchronize();
    packed_ = std::move(packed);
  }

  Problem problem_;
  const ConvProblem* conv_;
  const MatMulProblem* product_;
  device::Device& device_;
  Load load_;
  int multiprocessors_;
  bool has_clusters_;
  DType a_type_, result_type_;
  unsigned read_types_ = 0; ///< of operands of post-operations, a bit each
  OperandInfo w_;
  LazyKernel plain_;
  std::unique_ptr<ByteRows> rows_;  ///< where weights are constant
  mutable Compiled products_[2][2]; ///< by `vector` and `taps`
  mutable Compiled laying_[2];      ///< by `taps`
  mutable Compiled pack_, join_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<device::Memory> packed_; ///< sums of columns, behind them the columns
  Notes notes_;
};

} // namespace

std::string supports_cuda_byte_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                       std::span<const OperandInfo> outputs,
                                       const device::Properties& properties) {
  if (!has_tensor_cores(properties))
    return fmt::format("tensor cores for bytes begin with sm_80 (Ampere), and {} is an {}", properties.name,
                       properties.architecture);
  const DType a = inputs[0].dtype, b = inputs[1].dtype, y = outputs[0].dtype;
  if (!is_byte(a) || !is_byte(b)) return fmt::format("{} times {}", name_of(a), name_of(b));
  const auto* conv = std::get_if<ConvProblem>(&problem);
  const auto* product = std::get_if<MatMulProblem>(&problem);
  const std::vector<PostOp>& ops = conv ? conv->post_ops : product->post_ops;
  if (std::string reason = loops_refuse(inputs, outputs, ops); !reason.empty()) return reason;
  auto reads = [](DType t) { return t == DType::f32 || t == DType::i32 || is_half(t) || is_byte(t); };
  if (ops.empty() ? y != DType::i32 : y == DType::i32 || !reads(y))
    return fmt::format("a result of {}", name_of(y));
  for (const PostOp& op : ops)
    if (op.operand >= 0 && !reads(inputs[op.operand].dtype))
      return fmt::format("{} behind an exact sum", name_of(inputs[op.operand].dtype));
  if (outputs[0].sizes.size() > 2 + kOuter) return fmt::format("more than {} outer dimensions", kOuter);
  if (product) return product->has_bias || product->alpha != 1 ? "a bias or a factor of an exact sum" : "";
  if (conv->transposed) return "a transposed convolution";
  if (conv->has_bias && inputs[2].dtype != DType::i32) return "a bias that is not int32";
  if (const int64_t channels = inputs[1].sizes[1]; conv->group > 1 && channels < kFewestChannels)
    return fmt::format("groups of fewer than {} channels", kFewestChannels);
  return {};
}

std::unique_ptr<ExternKernel> make_byte_product(device::Device& device, const Problem& problem,
                                                std::span<const OperandInfo> inputs,
                                                std::span<const OperandInfo> outputs, Load load,
                                                int multiprocessors) {
  return std::make_unique<ByteProduct>(device, problem, inputs, outputs, std::move(load), multiprocessors);
}

std::unique_ptr<ExternKernel> make_cuda_byte_product(device::Device& device, const Problem& problem,
                                                     std::span<const OperandInfo> inputs,
                                                     std::span<const OperandInfo> outputs) {
  return make_byte_product(device, problem, inputs, outputs);
}

} // namespace tbx::extern_kernels
