// Attention in float16 and bfloat16 by cuDNN: the graph of its operations that the library knows as
// attention. What it does not take is left to our own kernel, and so is what that computes faster.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>

#include "base/error.h"
#include "base/side_by_side.h"
#include "device/cuda/cuda_device.h"
#include "extern_kernels/cuda/dnn_plan.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/cuda/notes.h"
#include "extern_kernels/cuda/plain.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

enum Id : int64_t { kQ = 1, kK, kV, kO, kMask, kScale, kLowest };
constexpr int64_t kWidest = 128;

/// Sizes and strides as [batch, heads, rows, columns].
struct Described {
  std::vector<int64_t> sizes, strides;
  int align = 16;
  auto
  operator<=>(const Described&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

Described described(const TensorRef& t, bool placed) {
  return {{t.sizes.begin(), t.sizes.end()},
          {t.strides.begin(), t.strides.end()},
          placed ? alignment_of(t.data) : 16};
}

/// All that a plan depends on. `k` lies as the right-hand side of the product: [batch, heads, depth, keys].
struct Key {
  Described q, k, v, o, mask;
  bool causal = false;
  int type = dnn::kF16;
  auto operator<=>(const Key&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

/// A query sees what lies on the diagonal and left of it: the form of a causal mask that the graph has.
enum class Sight : uint8_t { all, diagonal, other };

Sight sight_of(const AttentionProblem& p, int64_t queries, int64_t keys) {
  if (!p.causal) return Sight::all;
  if (p.has_starts || p.window > 0) return Sight::other;
  if (p.from_end && queries == 1) return Sight::all;
  return p.from_end && queries != keys ? Sight::other : Sight::diagonal;
}

/// The library fuses exactly this sequence: product, scale, masks, maximum, difference, exponential, sum,
/// logarithm of the sum (which nobody reads), quotient, product. Without the scale or the logarithm it does
/// not.
std::shared_ptr<dnn::Graph> attention_graph(const Key& key) {
  auto graph = std::make_shared<dnn::Graph>();
  auto tensor = [&](Id id, const Described& d) -> dnn::Object& {
    return graph->tensor(id, key.type, d.sizes, d.strides, d.align);
  };
  const int64_t b = key.q.sizes[0], h = key.q.sizes[1], s = key.q.sizes[2], t = key.k.sizes[3];
  const std::vector<int64_t> sizes{b, h, s, t}, strides{h * s * t, s * t, t, 1}, one{b, h, s, 1},
      one_strides{h * s, s, 1, 1};
  auto scores = [&](int of = dnn::kF32) -> dnn::Object& { return graph->inner(of, sizes, strides); };
  auto rows = [&]() -> dnn::Object& { return graph->inner(dnn::kF32, one, one_strides); };
  dnn::Object &q = tensor(kQ, key.q), &k = tensor(kK, key.k), &v = tensor(kV, key.v), &o = tensor(kO, key.o);
  dnn::Object& product = scores();
  graph->product(q, k, product);
  dnn::Object* x = &scores();
  graph->pointwise(dnn::kMul, product, &graph->scalar(kScale), *x);
  if (!key.mask.sizes.empty()) {
    dnn::Object& masked = scores();
    graph->pointwise(dnn::kAdd, *x, &tensor(kMask, key.mask), masked);
    x = &masked;
  }
  if (key.causal) {
    dnn::Object &row = scores(dnn::kI32), &column = scores(dnn::kI32), &sees = scores(dnn::kBool),
                &masked = scores();
    graph->pointwise(dnn::kGenIndex, *x, nullptr, row, nullptr, dnn::kI32, 2);
    graph->pointwise(dnn::kGenIndex, *x, nullptr, column, nullptr, dnn::kI32, 3);
    graph->pointwise(dnn::kGreaterOrEqual, row, &column, sees, nullptr, dnn::kBool);
    graph->pointwise(dnn::kSelect, *x, &graph->scalar(kLowest), masked, &sees);
    x = &masked;
  }
  dnn::Object &most = rows(), &shifted = scores(), &powers = scores(), &sum = rows(), &log = rows(),
              &both = rows(), &weights = scores(key.type);
  graph->reduction(dnn::kReduceMax, *x, most);
  graph->pointwise(dnn::kSub, *x, &most, shifted);
  graph->pointwise(dnn::kExp, shifted, nullptr, powers);
  graph->reduction(dnn::kReduceAdd, powers, sum);
  graph->pointwise(dnn::kLog, sum, nullptr, log);
  graph->pointwise(dnn::kAdd, most, &log, both);
  graph->pointwise(dnn::kDiv, powers, &sum, weights);
  graph->product(weights, v, o);
  return graph;
}

class CudnnAttention final : public LibraryKernel {
public:
  CudnnAttention(device::Device& device, const AttentionProblem& p, std::span<const OperandInfo> inputs,
                 std::span<const OperandInfo> outputs)
      : p_(p), type_(inputs[0].dtype), context_(device::context_of(device)),
        plain_(make_cuda_attention, device, p, inputs, outputs), version_(dnn::version()) {}

  std::string description() const override { return fmt::format("{} {}", version_, to_string(Problem(p_))); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    // The library's plans and our own kernel are compiled at the same time.
    std::call_once(compiled_, [&] {
      side_by_side(2, [&](size_t i) {
        if (i == 0)
          make_call(inputs, outputs[0], false);
        else
          plain_.get();
      });
    });
    const Call call = make_call(inputs, outputs[0], false);
    return std::max(call.found.plans ? call.found.plans->workspace_bytes() : 0,
                    plain_.get().workspace_bytes(inputs, outputs));
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    const Call call = make_call(args.inputs, args.outputs[0], true);
    if (!call.found.plans) return run_own(args, call.found.refusal);
    static constexpr float kInfinity = std::numeric_limits<float>::infinity();
    static const float lowest = -kInfinity;
    dnn::Plans::Addresses at;
    at.of = {{kQ, args.inputs[0].data},
             {kK, args.inputs[1].data},
             {kV, args.inputs[2].data},
             {kO, args.outputs[0].data},
             {kScale, &p_.scale}};
    if (p_.has_mask) at.of.emplace_back(kMask, args.inputs[3].data);
    if (call.key.causal) at.of.emplace_back(kLowest, &lowest);
    at.workspace = args.workspace;
    at.workspace_bytes = workspace_bytes(args.inputs, args.outputs);
    for (int i = 0; i < 3; ++i) at.hot.push_back(bytes_of(args.inputs[i])); // no weights
    at.other = [&](const dnn::Plans::Addresses&) { plain_.get().run(args); };
    if (!call.found.plans->run(*args.stream, at)) return run_own(args, kLargerWorkspace);
    notes_.add(fmt::format("[{}] x {}: {}", fmt::join(args.inputs[0].sizes, " x "), args.inputs[1].sizes[2],
                           call.found.plans->description()));
  }

  std::vector<std::string> implementations() const override { return notes_.all(); }
  bool measures() const override { return measuring(); }

private:
  void run_own(const RunArgs& args, const std::string& why) const {
    notes_.add("our own kernel: " + why);
    plain_.get().run(args);
  }

  struct Call {
    Key key;
    dnn::Found found;
  };

  /// What only the sizes of a run tell.
  std::string refusal_of(std::span<const TensorRef> in, const TensorRef& y) const {
    const TensorRef &q = in[0], &k = in[1], &v = in[2];
    if (q.sizes[1] != k.sizes[1]) return "heads of queries that share those of keys";
    if (q.sizes[3] % 8 != 0 || v.sizes[3] % 8 != 0) return "heads whose width is no multiple of 8";
    if (std::max(q.sizes[3], v.sizes[3]) > kWidest) return fmt::format("heads wider than {}", kWidest);
    if (k.sizes[2] == 0 || q.sizes[3] == 0) return "an empty operand";
    for (const TensorRef& t : {q, k, v, y})
      if (t.strides[3] != 1) return "a head that is not dense";
    if (sight_of(p_, q.sizes[2], k.sizes[2]) == Sight::other) return "a causal mask that is not the diagonal";
    if (p_.has_mask && in[3].sizes[3] != k.sizes[2]) return "a mask that repeats along the keys";
    return {};
  }

  /// `placed`: the addresses of a run count, not only the sizes.
  Call make_call(std::span<const TensorRef> inputs, const TensorRef& y, bool placed) const {
    static auto* cache = new dnn::PlanCache<Key>;
    Call call;
    call.found.refusal = refusal_of(inputs, y);
    if (!call.found.refusal.empty()) return call;
    Key& key = call.key;
    auto form = [&](const TensorRef& t) { return described(t, placed); };
    key.q = form(inputs[0]);
    key.k = form(inputs[1]);
    std::swap(key.k.sizes[2], key.k.sizes[3]);
    std::swap(key.k.strides[2], key.k.strides[3]);
    key.v = form(inputs[2]);
    key.o = form(y);
    if (p_.tokens_first) {
      std::swap(key.o.sizes[1], key.o.sizes[2]);
      std::swap(key.o.strides[1], key.o.strides[2]);
    }
    if (p_.has_mask) key.mask = form(inputs[3]);
    key.causal = sight_of(p_, inputs[0].sizes[2], inputs[1].sizes[2]) == Sight::diagonal;
    key.type = type_ == DType::f16 ? dnn::kF16 : dnn::kBf16;
    dnn::PlanWish wish;
    wish.runtime_compiled = true; // there are no others
    wish.most = 2; // of four the first two were always the fastest (attention of 8 models, an H100)
    call.found = cache->get(context_, key, wish, [&] { return attention_graph(key); });
    return call;
  }

  AttentionProblem p_;
  DType type_;
  std::shared_ptr<const device::cuda::ContextOwner> context_;
  LazyKernel plain_;
  std::string version_;
  mutable std::once_flag compiled_;
  Notes notes_;
};

} // namespace

std::string supports_cuda_attention(const Problem&, std::span<const OperandInfo>,
                                    std::span<const OperandInfo>, const device::Properties&);

std::string supports_cudnn_attention(const Problem& problem, std::span<const OperandInfo> inputs,
                                     std::span<const OperandInfo> outputs,
                                     const device::Properties& properties) {
  const auto& p = std::get<AttentionProblem>(problem);
  if (!is_half(inputs[0].dtype)) return fmt::format("{} operands", name_of(inputs[0].dtype));
  for (const OperandInfo& o : {inputs[1], inputs[2], outputs[0]})
    if (o.dtype != inputs[0].dtype) return "operands and result of different types";
  if (p.has_mask && inputs[3].dtype != inputs[0].dtype) return "a mask of another type";
  if (p.has_starts || p.window > 0) return "queries that do not begin at the first key, or see few of them";
  if (p.has_sinks) return "sinks";
  if (p.softcap > 0) return "a bound of the scores";
  if (p.appends) return "a new key and value";
  if ((p.zero_undefined_rows || p.zero_hidden_rows) && p.has_mask)
    return "rows of zeros where everything is masked";
  // Where the library refuses the sizes of a run, our own kernel must do.
  return supports_cuda_attention(problem, inputs, outputs, properties);
}

std::unique_ptr<ExternKernel> make_cudnn_attention(device::Device& device, const Problem& problem,
                                                   std::span<const OperandInfo> inputs,
                                                   std::span<const OperandInfo> outputs) {
  return std::make_unique<CudnnAttention>(device, std::get<AttentionProblem>(problem), inputs, outputs);
}

} // namespace tbx::extern_kernels
