#include "extern_kernels/cuda/fused_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/float_formats.h"
#include "device/cuda/stream.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/measure.h"
#include "extern_kernels/cuda/notes.h"
#include "extern_kernels/cuda/products.h"
#include "extern_kernels/cuda/select.h"
#include "extern_kernels/cuda/tensor_attention.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

const char* const kText =
#include "extern_kernels/cuda/fused_product.inc"
    ;

/// Of the result: what a block has, what a warp has; `shares` warps share the terms.
struct Tile {
  int64_t rows, columns, warp_rows, warp_columns, shares;

  int64_t threads() const { return rows / warp_rows * (columns / warp_columns) * shares * 32; }
  /// As in the text: four tiles of 64 terms of both operands, rows of which are padded.
  int64_t shared_bytes(bool b_columns) const {
    constexpr int64_t kStages = 4, kDepth = 64, kPad = 8;
    return kStages * 2 *
           (rows * (kDepth + kPad) + (b_columns ? columns * (kDepth + kPad) : kDepth * (columns + kPad)));
  }
  std::string name() const { return fmt::format("fused_{}x{}", rows, columns); }
};

/// Way n has tile n - 1.
constexpr Tile kTiles[] = {
    {16, 32, 16, 16, 4}, {32, 32, 16, 32, 4}, {64, 32, 32, 32, 4}, {64, 64, 32, 32, 2}, {128, 64, 32, 32, 1}};
static_assert(std::size(kTiles) + 1 == kFusedWays);

/// For so many rows these ways are tried, first the one that is taken unmeasured.
struct Class {
  int64_t most_rows;
  std::vector<size_t> ways;
};
const std::vector<Class>& classes() {
  static const std::vector<Class> all{
      {16, {1}}, {32, {2, 1}}, {64, {3, 2}}, {512, {4, 3, 5}}, {std::numeric_limits<int64_t>::max(), {}}};
  return all;
}
constexpr size_t kClasses = 5;
size_t class_of(int64_t rows) {
  size_t c = 0;
  while (rows > classes()[c].most_rows) ++c;
  return c;
}

std::string text_of(DType half, bool b_columns, const std::vector<size_t>& ways) {
  std::string text = fmt::format("#define HALF {}\n#define B_COLUMNS {}\n{}\n{}\nnamespace tbx {{\n",
                                 static_cast<int>(half), b_columns ? 1 : 0, loops_arguments(), kText);
  for (size_t way : ways) {
    const Tile& t = kTiles[way - 1];
    text += fmt::format("TBX_FUSED_PRODUCT({}, {}, {}, {}, {}, {}, {})\n", t.name(), t.threads(), t.rows,
                        t.columns, t.warp_rows, t.warp_columns, t.shares);
  }
  return text + "}\n";
}

using Load = std::function<std::shared_ptr<device::Module>(const std::string& text)>;

/// One of them, as the kernel takes it.
struct Call {
  Gemm gemm;
  FusedArguments arguments;
  std::string refusal; ///< why none of the tiles takes it; empty: they do
};

/// What was found to be the fastest, once per process.
struct Choice {
  size_t way = 0;
  std::string why;
};

class FusedProduct final : public LibraryKernel {
public:
  FusedProduct(device::Device& device, const MatMulProblem& p, std::span<const OperandInfo> inputs,
               std::span<const OperandInfo> outputs, Load load, std::optional<size_t> way)
      : p_(p), sums_(p), half_(inputs[0].dtype), device_(device), load_(std::move(load)), way_(way),
        infos_(inputs.begin(), inputs.end()) {
    for (OperandInfo& i : infos_) i.constant = nullptr; // held by others
    sums_.post_ops.pop_back();
    library_ = select_on(device, sums_, inputs, outputs).kernel;
    own_ = load_ || has_tensor_cores(device.properties());
    if (load_) return;
    load_ = [&device](const std::string& text) { return loaded(device, text); };
    compile_ahead(inputs[1], outputs[0]);
  }

  std::string description() const override {
    return fmt::format("{}; exact GELU in a kernel of ours", library_->description());
  }
  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    return library_->workspace_bytes(inputs, outputs);
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    const Call call = call_of(args.inputs, args.outputs[0]);
    const Choice choice = call.refusal.empty() ? choose(args, call) : Choice{0, call.refusal};
    compute(choice.way, args, call);
    const Gemm& g = call.gemm;
    notes_.add(fmt::format(
        "[{} x {} x {} x {}]: {}{}{}", g.batch, g.m, g.k, g.n,
        choice.way == 0 ? "the library and a pass behind it" : "our own kernel, " + kTiles[choice.way - 1].name(),
        choice.why.empty() ? "" : ", ", choice.why));
  }

  std::vector<std::string> implementations() const override {
    std::vector<std::string> all = notes_.all();
    if (const auto* library = dynamic_cast<const LibraryKernel*>(library_.get()))
      for (std::string& note : library->implementations()) all.push_back(std::move(note));
    return all;
  }
  int64_t packed_bytes() const override { return library_->packed_bytes(); }

private:
  struct Compiled {
    std::shared_ptr<device::Module> module;
    std::vector<device::Kernel> tiles; ///< by way, less 1
    device::Kernel activate;
    std::string refusal; ///< why there is none
  };

  Call call_of(std::span<const TensorRef> in, const TensorRef& c) const {
    Call call;
    std::vector<OperandInfo> infos = infos_;
    for (size_t i = 0; i < infos.size(); ++i) infos[i].sizes.assign(in[i].sizes.begin(), in[i].sizes.end());
    const Epilogue e =
        epilogue_of(p_.post_ops, p_.has_bias ? 2 : -1, infos,
                    {c.dtype, {c.sizes.begin(), c.sizes.end()}, {}, nullptr}, static_cast<int>(c.sizes.size()) - 1);
    if (!e.refusal.empty()) return call.refusal = e.refusal, call;
    const Products products = products_of(sums_, e, in, c);
    const Gemm& g = call.gemm = products.gemm;
    auto refuse = [&](std::string why) {
      call.refusal = std::move(why);
      return call;
    };
    if (!products.refusal.empty()) return refuse(products.refusal);
    if (!own_) return refuse("no tensor cores");
    if (!products.outer.empty() || g.batch > 1) return refuse("batches");
    if (g.a_columns) return refuse("a left-hand side whose rows are not dense");
    constexpr int64_t kVector = 8;
    for (int64_t n : {g.k, g.n, g.a_step, g.b_step, g.c_step, g.residual_step})
      if (n % kVector != 0) return refuse("rows that are no multiples of 16 bytes");
    FusedArguments& a = call.arguments;
    a.a = in[0].data, a.b = in[1].data, a.c = c.data;
    if (e.bias >= 0) a.bias = in[e.bias].data;
    if (e.residual >= 0) a.residual = in[e.residual].data;
    for (const void* at : {a.a, a.b, a.bias, a.residual, static_cast<const void*>(a.c)})
      if (alignment_of(at) < 16) return refuse("operands that do not begin at a multiple of 16 bytes");
    a.a_step = g.a_step, a.b_step = g.b_step, a.c_step = g.c_step, a.residual_step = g.residual_step;
    a.rows = static_cast<int>(g.m), a.columns = static_cast<int>(g.n), a.terms = static_cast<int>(g.k);
    a.alpha = p_.alpha;
    if (!way_ && classes()[class_of(g.m)].ways.empty()) return refuse("many rows");
    return call;
  }

  /// The work in the way that is asked for, which the operands allow.
  void compute(size_t way, const RunArgs& args, const Call& call) const {
    if (way == 0) {
      library_->run(args);
      return activate(*args.stream, args.outputs[0]);
    }
    const Tile& tile = kTiles[way - 1];
    const FusedArguments& a = call.arguments;
    device::LaunchShape shape;
    shape.threads = static_cast<uint32_t>(tile.threads());
    shape.blocks = static_cast<uint32_t>((a.rows + tile.rows - 1) / tile.rows *
                                         ((a.columns + tile.columns - 1) / tile.columns));
    shape.shared_bytes = static_cast<uint32_t>(tile.shared_bytes(call.gemm.b_columns));
    void* pointers[] = {const_cast<FusedArguments*>(&a)};
    args.stream->launch(compiled_for(call.gemm.m, call.gemm.b_columns).tiles[way - 1], shape, pointers);
  }

  Choice choose(const RunArgs& args, const Call& call) const {
    if (way_) return {*way_, ""};
    static std::mutex mutex;
    static auto* choices = new std::map<std::pair<int, Gemm>, Choice>;
    std::scoped_lock lock(mutex);
    const std::pair key(device_.properties().number, call.gemm);
    if (const auto known = choices->find(key); known != choices->end()) return known->second;
    const Compiled& compiled = compiled_for(call.gemm.m, call.gemm.b_columns);
    if (!compiled.refusal.empty()) return (*choices)[key] = {0, compiled.refusal};
    std::vector<size_t> ways;
    for (size_t way : classes()[class_of(call.gemm.m)].ways)
      if (kTiles[way - 1].shared_bytes(call.gemm.b_columns) <= device_.properties().shared_bytes_block)
        ways.push_back(way);
    if (ways.empty()) return (*choices)[key] = {0, "too little shared memory"};
    if (device::cuda::is_capturing(*args.stream)) return {ways[0], ""};
    return (*choices)[key] = measuring() ? measured(ways, args, call) : Choice{ways[0], ""};
  }

  Choice measured(std::vector<size_t> ways, const RunArgs& args, const Call& call) const {
    ways.insert(ways.begin(), 0);
    const std::vector<uint16_t> expected = computed(0, args, call);
    std::string refusals;
    std::vector<float> times(ways.size());
    const Bytes hot = bytes_of(args.inputs[0]);
    const std::optional<size_t> best =
        fastest(device::cuda::handle_of(*args.stream), ways.size(), {&hot, 1},
                [&](size_t i) {
                  try {
                    compute(ways[i], args, call);
                    return true;
                  } catch (const Error& e) { // another one will do
                    refusals += fmt::format(", {}: {}", kTiles[ways[i] - 1].name(), e.message());
                    return false;
                  }
                },
                times);
    Choice choice{best ? ways[*best] : 0, ""};
    if (choice.way != 0)
      choice.why = fmt::format("{:.2f} of the time of the library and a pass behind it", times[*best] / times[0]);
    else // of ways that do not work the time is 0
      choice.why = fmt::format("{:.2f} of the time of our own kernel",
                               times[0] / *std::max_element(times.begin() + 1, times.end()));
    // What tensor cores give is held against the library once.
    if (choice.way != 0)
      if (const double e = difference(computed(choice.way, args, call), expected); !(e < kMostDifference))
        choice = {0, fmt::format("our own kernel differs by {:.1e}", e)};
    choice.why += refusals;
    return choice;
  }

  std::vector<uint16_t> computed(size_t way, const RunArgs& args, const Call& call) const {
    compute(way, args, call);
    const Bytes all = bytes_of(args.outputs[0]);
    std::vector<uint16_t> values(all.size / sizeof(uint16_t));
    args.stream->download(values.data(), all.data, all.size);
    args.stream->synchronize();
    return values;
  }
  /// L2 norm of the difference, over that of what is expected.
  double difference(const std::vector<uint16_t>& got, const std::vector<uint16_t>& expected) const {
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double g = decode_float(half_, got[i]), e = decode_float(half_, expected[i]);
      if (std::isfinite(e)) norm += e * e;
      if (got[i] != expected[i] && !(std::isnan(g) && std::isnan(e))) error += (g - e) * (g - e);
    }
    return error == 0 ? 0 : std::sqrt(error / norm);
  }

  /// GELU of what lies in c.
  void activate(device::Stream& stream, const TensorRef& c) const {
    FusedArguments a;
    a.c = c.data, a.elements = c.numel();
    const size_t last = c.sizes.size() - 1;
    const int64_t columns = c.sizes[last];
    // Rows that lie at one distance from each other.
    int64_t rows = 1, step = columns;
    bool fits = columns == 1 || c.strides[last] == 1;
    for (size_t d = last; d-- > 0;) {
      if (c.sizes[d] == 1) continue;
      if (rows == 1) step = c.strides[d];
      fits = fits && c.strides[d] == step * rows;
      rows *= c.sizes[d];
    }
    if (step == columns) rows = 1;
    const Compiled& compiled = compiled_for(std::numeric_limits<int64_t>::max(), false);
    constexpr int64_t kVector = 8, kThreads = 256;
    const int64_t blocks = (a.elements / kVector + kThreads - 1) / kThreads;
    if (!fits || columns % kVector != 0 || (rows > 1 && step % kVector != 0) || alignment_of(c.data) < 16 ||
        std::max(blocks, rows) > INT32_MAX || !compiled.refusal.empty())
      return activate_anywhere(stream, c);
    a.rows = static_cast<int>(rows), a.c_step = step;
    device::LaunchShape shape;
    shape.threads = kThreads, shape.blocks = static_cast<uint32_t>(blocks);
    void* pointers[] = {&a};
    stream.launch(compiled.activate, shape, pointers);
  }

  void activate_anywhere(device::Stream& stream, const TensorRef& c) const {
    std::call_once(finish_once_,
                   [&] { finish_ = std::make_unique<LoopKernel>(device_, Loop::finishing, half_, half_, half_); });
    FinishArguments a;
    a.elements = c.numel();
    a.rank = static_cast<int>(c.sizes.size());
    std::copy(c.sizes.begin(), c.sizes.end(), a.sizes);
    a.x = view_of(c, c.sizes);
    a.post = steps_of({p_.post_ops.back()}, {}, c.sizes);
    void* pointers[] = {&a};
    finish_->launch(stream, shape_of_elements(a.elements, device_.properties()), pointers);
  }

  /// What the first run will most likely want.
  void compile_ahead(const OperandInfo& b, const OperandInfo& c) const {
    int64_t rows = 1;
    for (size_t d = 0; d + 1 < c.sizes.size(); ++d) rows = c.sizes[d] < 0 ? -1 : rows * c.sizes[d];
    compiled_for(std::numeric_limits<int64_t>::max(), false);
    if (!own_ || rows <= 0 || b.strides.size() < 2) return;
    compiled_for(rows, b.strides.back() != 1);
  }

  const Compiled& compiled_for(int64_t rows, bool b_columns) const {
    const size_t c = way_ ? 0 : class_of(rows);
    Compiled& compiled = compiled_[c][b_columns];
    std::call_once(once_[c][b_columns], [&] {
      try {
        std::vector<size_t> ways = classes()[c].ways;
        if (way_) ways = *way_ == 0 ? std::vector<size_t>{} : std::vector<size_t>{*way_};
        compiled.module = load_(text_of(half_, b_columns, ways));
        compiled.activate = compiled.module->kernel("activate");
        compiled.tiles.resize(std::size(kTiles));
        for (size_t way : ways) compiled.tiles[way - 1] = compiled.module->kernel(kTiles[way - 1].name());
      } catch (const Error& e) {
        compiled.refusal = fmt::format("our own kernel was not made: {}", e.message());
      }
    });
    return compiled;
  }

  static constexpr double kMostDifference = 2e-2; ///< bfloat16 has 8 bits, and the library rounds twice
  MatMulProblem p_, sums_; ///< the product without the activation
  DType half_;
  device::Device& device_;
  Load load_;
  std::optional<size_t> way_;
  std::vector<OperandInfo> infos_;
  std::unique_ptr<ExternKernel> library_;
  bool own_ = false; ///< the GPU has the instructions
  Notes notes_;
  mutable std::once_flag once_[kClasses][2], finish_once_;
  mutable Compiled compiled_[kClasses][2]; ///< by number of rows, and by what of b is dense
  mutable std::unique_ptr<LoopKernel> finish_;
};

} // namespace

std::string supports_cublas_matmul(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>);

std::string supports_cuda_fused_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                        std::span<const OperandInfo> outputs) {
  MatMulProblem sums = std::get<MatMulProblem>(problem);
  if (sums.post_ops.empty() || sums.post_ops.back().kind != PostOp::gelu_erf) return "no exact GELU at the end";
  const DType half = inputs[0].dtype;
  if (!is_half(half) || outputs[0].dtype != half)
    return fmt::format("exact GELU of {} operands and a result of {}", name_of(half), name_of(outputs[0].dtype));
  sums.post_ops.pop_back();
  if (std::any_of(sums.post_ops.begin(), sums.post_ops.end(), [](const PostOp& op) { return op.kind != PostOp::add; }))
    return "work other than additions before GELU";
  return supports_cublas_matmul(sums, inputs, outputs);
}

std::string fused_product_text(DType half, bool b_columns) {
  return text_of(half, b_columns, {1, 2, 3, 4, 5});
}

std::unique_ptr<ExternKernel> make_fused_product(device::Device& device, const Problem& problem,
                                                 std::span<const OperandInfo> inputs,
                                                 std::span<const OperandInfo> outputs, Load load,
                                                 std::optional<size_t> way) {
  return std::make_unique<FusedProduct>(device, std::get<MatMulProblem>(problem), inputs, outputs, std::move(load), way);
}

std::unique_ptr<ExternKernel> make_cuda_fused_product(device::Device& device, const Problem& problem,
                                                      std::span<const OperandInfo> inputs,
                                                      std::span<const OperandInfo> outputs) {
  return make_fused_product(device, problem, inputs, outputs);
}

} // namespace tbx::extern_kernels
