// Strict float32 convolutions of single pixels with channels innermost: they are matrix products, and
// cuBLASLt splits long sums among blocks, which cuDNN's plans without tensor cores do not.
#include <fmt/format.h>

#include <algorithm>

#include "device/cuda/cuda_device.h"
#include "extern_kernels/cuda/conv_weights.h"
#include "extern_kernels/cuda/epilogue.h"
#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/cuda/notes.h"
#include "extern_kernels/cuda/plain.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::extern_kernels {

using namespace cuda;

std::unique_ptr<ExternKernel> make_cudnn_conv(device::Device&, const Problem&, std::span<const OperandInfo>,
                                              std::span<const OperandInfo>);
std::string supports_cudnn_conv(const Problem&, std::span<const OperandInfo>, std::span<const OperandInfo>,
                                const device::Properties&);

namespace {

class CublasConv final : public LibraryKernel {
public:
  CublasConv(device::Device& device, const ConvProblem& p, std::span<const OperandInfo> inputs,
             std::span<const OperandInfo> outputs)
      : p_(p), context_(device::context_of(device)), other_(make_cudnn_conv, device, p, inputs, outputs),
        plain_(make_cuda_conv, device, p, inputs, outputs), version_(lt::version()) {}

  std::string description() const override { return fmt::format("{} {}", version_, to_string(Problem(p_))); }

  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    if (outputs[0].numel() == 0) return 0;
    const Call call = make_call(inputs, outputs[0], false);
    if (call.plan->empty()) return other_.get().workspace_bytes(inputs, outputs);
    return static_cast<int64_t>(call.plan->workspace_bytes());
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    if (make_call(args.inputs, args.outputs[0], false).plan->empty()) {
      notes_.add("cuDNN: cuBLASLt has no algorithm");
      return other_.get().run(args);
    }
    const Call call = make_call(args.inputs, args.outputs[0], true);
    auto data = [&](int input) { return input >= 0 ? args.inputs[input].data : nullptr; };
    GemmAddresses at{args.inputs[0].data, args.inputs[1].data, data(call.epilogue.bias),
                     data(call.epilogue.residual), args.outputs[0].data};
    if (call.epilogue.in_place) at.residual = at.c;
    if (call.plan->empty() ||
        !call.plan->run(*args.stream, at, 1, args.workspace,
                        static_cast<size_t>(workspace_bytes(args.inputs, args.outputs)))) {
      notes_.add(std::string("plain loops: ") + kLargerWorkspace);
      return plain_.get().run(args);
    }
    notes_.add(fmt::format("[{}]: {}", fmt::join(args.inputs[0].sizes, " x "), call.plan->description()));
  }

  std::vector<std::string> implementations() const override { return notes_.all(); }
  bool measures() const override { return measuring(); }

private:
  struct Call {
    Epilogue epilogue;
    std::shared_ptr<GemmPlan> plan;
  };

  /// `placed`: the addresses of a run count, not only the sizes.
  Call make_call(std::span<const TensorRef> inputs, const TensorRef& y, bool placed) const {
    Call call;
    std::vector<OperandInfo> infos = other_.inputs();
    for (size_t i = 0; i < infos.size(); ++i)
      infos[i].sizes.assign(inputs[i].sizes.begin(), inputs[i].sizes.end());
    call.epilogue = epilogue_of(p_.post_ops, p_.has_bias ? 2 : -1, infos,
                                {y.dtype, {y.sizes.begin(), y.sizes.end()}, {}, nullptr}, 1);
    Gemm g;
    g.m = y.numel() / y.sizes[1], g.n = y.sizes[1], g.k = inputs[0].sizes[1];
    g.a_step = g.k;
    g.b_columns = true, g.b_step = g.k;
    g.c_step = g.residual_step = g.n;
    g.bias = call.epilogue.bias >= 0, g.residual = call.epilogue.residual >= 0;
    if (!g.residual) g.residual_step = 0;
    g.activation = call.epilogue.activation;
    if (placed) {
      g.align_a = alignment_of(inputs[0].data), g.align_b = alignment_of(inputs[1].data);
      g.align_c = alignment_of(y.data);
      if (g.residual) g.align_c = std::min(g.align_c, alignment_of(inputs[call.epilogue.residual].data));
    }
    call.plan = plan_of(context_, g);
    return call;
  }

  ConvProblem p_;
  std::shared_ptr<const device::cuda::ContextOwner> context_;
  LazyKernel other_, plain_;
  std::string version_;
  Notes notes_;
};

} // namespace

std::string supports_cublas_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs, const device::Properties& properties) {
  const auto& p = std::get<ConvProblem>(problem);
  if (inputs[0].dtype != DType::f32 || p.precision == Precision::any) return "tensor cores may be used";
  if (p.transposed || p.group != 1) return "a transposed or grouped convolution";
  auto all = [](const std::vector<int64_t>& v, int64_t n) {
    return std::all_of(v.begin(), v.end(), [&](int64_t x) { return x == n; });
  };
  if (!all({inputs[1].sizes.begin() + 2, inputs[1].sizes.end()}, 1) || !all(p.strides, 1) ||
      !all(p.pads_begin, 0) || !all(p.pads_end, 0))
    return "more than single pixels";
  if (std::string reason = supports_cudnn_conv(problem, inputs, outputs, properties); !reason.empty())
    return reason;
  std::vector<OperandInfo> images{inputs[0], inputs[1], outputs[0]};
  const Epilogue e = epilogue_of(p.post_ops, p.has_bias ? 2 : -1, inputs, outputs[0], 1);
  if (e.residual >= 0) images.push_back(inputs[e.residual]);
  for (const OperandInfo& i : images) {
    if (i.strides.empty() || std::any_of(i.sizes.begin(), i.sizes.end(), [](int64_t s) { return s < 0; }))
      return "sizes or strides that are known at run time only";
    if (!is_rows(i.sizes, i.strides)) return "channels that are not innermost";
  }
  if (inputs[0].sizes[1] == 0) return "an empty operand";
  return {};
}

std::unique_ptr<ExternKernel> make_cublas_conv(device::Device& device, const Problem& problem,
                                               std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs) {
  return std::make_unique<CublasConv>(device, std::get<ConvProblem>(problem), inputs, outputs);
}

} // namespace tbx::extern_kernels
