// Attention on a GPU by a kernel of ours: what cuDNN refuses, and float32.
#include <fmt/format.h>

#include "base/error.h"
#include "extern_kernels/cuda/float_attention.h"
#include "extern_kernels/cuda/loop_attention.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/plain.h"
#include "extern_kernels/cuda/row_attention.h"
#include "extern_kernels/cuda/select.h"
#include "extern_kernels/cuda/tensor_attention.h"
#include "extern_kernels/launched_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

constexpr int64_t kWarps = 8, kKeys = 32; ///< as in loops.inc

int64_t shared_bytes(int64_t depth, int64_t width, DType type) {
  const int64_t padded = (depth + 3) / 4 * 4, element = type == DType::f64 ? 8 : 4;
  return (kWarps * padded + kKeys * (padded + 4) + kKeys * ((width + 31) / 32 * 32)) * element;
}

/// Empty when a block of the GPU has room for the queries, keys and values that it looks at together.
std::string refuses_heads(int64_t depth, int64_t width, DType type, const device::Properties& properties) {
  const int64_t bytes = shared_bytes(depth, width, type);
  if (bytes <= properties.shared_bytes_block) return {};
  return fmt::format("heads of {} and {} takes {} bytes of shared memory, and a block of {} has {}", depth,
                     width, bytes, properties.name, properties.shared_bytes_block);
}

class LoopAttention final : public LaunchedKernel {
public:
  LoopAttention(device::Device& device, const AttentionProblem& p, std::span<const OperandInfo> inputs,
                std::span<const OperandInfo> outputs)
      : p_(p), kernel_(device, Loop::attention, inputs[0].dtype, p.has_mask ? inputs[3].dtype : DType::f32,
                       outputs[0].dtype, (inputs[2].sizes[3] + 31) / 32) {}

  std::string description() const override { return "our own " + to_string(Problem(p_)); }

  void run(const RunArgs& args) const override {
    const TensorRef &q = args.inputs[0], &y = args.outputs[0];
    if (y.numel() == 0) return;
    AttentionArguments a = attention_arguments(p_, args.inputs, y);
    const int64_t batch = q.sizes[0];
    if (const std::string why = refuses_heads(a.depth, a.width, q.dtype, kernel_.properties()); !why.empty())
      throw_unsupported("attention of {}", why);
    device::LaunchShape shape;
    const int64_t blocks = batch * a.heads * ((a.queries + kWarps - 1) / kWarps);
    if (blocks > INT32_MAX) throw_unsupported("attention of {} blocks of queries", blocks);
    shape.blocks = static_cast<uint32_t>(blocks);
    shape.threads = kWarps * 32;
    shape.shared_bytes = static_cast<uint32_t>(shared_bytes(a.depth, a.width, q.dtype));
    void* pointers[] = {&a};
    kernel_.launch(*args.stream, shape, pointers);
  }

  bool can_rehearse() const override { return true; }

private:
  AttentionProblem p_;
  LoopKernel kernel_;
};

/// One kernel for few queries, another one for more.
class FewOrManyRows final : public LaunchedKernel {
public:
  FewOrManyRows(std::unique_ptr<ExternKernel> few, std::unique_ptr<ExternKernel> many)
      : few_(std::move(few)), many_(std::move(many)) {}

  std::string description() const override { return many_->description(); }
  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    return suited(inputs).workspace_bytes(inputs, outputs);
  }
  bool can_rehearse() const override { return few_->can_rehearse() && many_->can_rehearse(); }
  void run(const RunArgs& args) const override { suited(args.inputs).run(args); }

private:
  const ExternKernel& suited(std::span<const TensorRef> inputs) const {
    return suits_row_attention(inputs[0].sizes[1], inputs[1].sizes[1], inputs[0].sizes[2]) ? *few_ : *many_;
  }
  std::unique_ptr<ExternKernel> few_, many_;
};

} // namespace

namespace cuda {

AttentionArguments attention_arguments(const AttentionProblem& p, std::span<const TensorRef> inputs,
                                       const TensorRef& y) {
  const TensorRef &q = inputs[0], &k = inputs[1], &v = inputs[2];
  AttentionArguments a;
  a.heads = q.sizes[1], a.kv_heads = k.sizes[1], a.queries = q.sizes[2], a.keys = k.sizes[2];
  a.depth = q.sizes[3], a.width = v.sizes[3], a.window = p.window;
  TBX_MODEL(a.kv_heads > 0 && a.heads % a.kv_heads == 0, "{} heads of queries over {} of keys", a.heads,
            a.kv_heads);
  a.q = heads_view_of(q, q.sizes), a.k = heads_view_of(k, k.sizes), a.v = heads_view_of(v, v.sizes);
  a.out = heads_view_of(y, y.sizes);
  if (p.tokens_first) std::swap(a.out.strides[1], a.out.strides[2]);
  const int64_t scores[] = {q.sizes[0], a.heads, a.queries, a.keys};
  if (p.has_mask) a.mask = heads_view_of(inputs[3], scores);
  if (p.has_starts) a.starts = static_cast<const int*>(inputs[4].data);
  if (p.has_sinks) a.sinks = heads_view_of(inputs[5], inputs[5].sizes);
  a.scale = p.scale, a.softcap = p.softcap;
  a.causal = p.causal, a.from_end = p.from_end, a.zero_undefined = p.zero_undefined_rows,
  a.zero_hidden = p.zero_hidden_rows || a.keys == 0;
  return a;
}

} // namespace cuda

std::string supports_reference_attention(const Problem&, std::span<const OperandInfo>,
                                         std::span<const OperandInfo>, const Target&);

std::string supports_cuda_attention(const Problem& problem, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs,
                                    const device::Properties& properties) {
  constexpr int64_t kWidest = 1024;
  if (std::string reason = loops_refuse(inputs, outputs, {}); !reason.empty()) return reason;
  if (std::string reason = supports_reference_attention(problem, inputs, outputs, {}); !reason.empty())
    return reason;
  if (std::get<AttentionProblem>(problem).appends)
    return appends_on_gpu(inputs, outputs) ? "" : "a new key and value for queries that are many";
  const bool on_tensor_cores = refuses_tensor_attention(inputs, outputs).empty();
  if (on_tensor_cores && has_tensor_cores(properties)) return {};
  if (inputs[0].dtype != inputs[1].dtype || inputs[0].dtype != inputs[2].dtype)
    return on_tensor_cores
               ? fmt::format("{} queries over {} keys need an sm_80 (Ampere) or newer, and {} is an {}",
                             name_of(inputs[0].dtype), name_of(inputs[1].dtype), properties.name,
                             properties.architecture)
               : "queries, keys and values of different types";
  if (refuses_float_attention(properties, inputs, outputs).empty()) return {};
  const int64_t depth = inputs[0].sizes[3], width = inputs[2].sizes[3];
  if (width < 0) return "values whose width is known at run time only";
  if (width > kWidest) return fmt::format("values wider than {}", kWidest);
  if (depth >= 0) return refuses_heads(depth, width, inputs[0].dtype, properties); // else a run tells
  return {};
}

bool appends_on_gpu(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs) {
  if (!refuses_row_attention(inputs, outputs).empty()) return false;
  const int64_t heads = inputs[0].sizes[1], shared = inputs[1].sizes[1];
  return inputs[0].sizes[2] == 1 && inputs[AttentionProblem::kCacheKeys].sizes[2] == 1 &&
         suits_row_attention(heads, shared, 1);
}

std::unique_ptr<ExternKernel> make_cuda_attention(device::Device& device, const Problem& problem,
                                                  std::span<const OperandInfo> inputs,
                                                  std::span<const OperandInfo> outputs) {
  const auto& p = std::get<AttentionProblem>(problem);
  if (p.appends) return make_row_attention(device, p, inputs, outputs);
  auto with_few = [&](std::unique_ptr<ExternKernel> many) -> std::unique_ptr<ExternKernel> {
    if (!refuses_row_attention(inputs, outputs).empty()) return many;
    return std::make_unique<FewOrManyRows>(make_row_attention(device, p, inputs, outputs), std::move(many));
  };
  if (has_tensor_cores(device.properties()) && refuses_tensor_attention(inputs, outputs).empty())
    return with_few(make_tensor_attention(device, p, inputs, outputs));
  if (refuses_float_attention(device.properties(), inputs, outputs).empty())
    return with_few(make_float_attention(device, p, inputs));
  return with_few(std::make_unique<LoopAttention>(device, p, inputs, outputs));
}

} // namespace tbx::extern_kernels
