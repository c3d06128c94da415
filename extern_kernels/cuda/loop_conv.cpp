// Convolutions on a GPU by plain loops: a thread for an element of the result.
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/plain.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

class LoopConv final : public ExternKernel {
public:
  LoopConv(device::Device& device, const ConvProblem& p, std::span<const OperandInfo> inputs,
           std::span<const OperandInfo> outputs)
      : p_(p), kernel_(device, Loop::convolution, inputs[0].dtype, inputs[1].dtype, outputs[0].dtype) {}

  std::string description() const override { return "plain loops " + to_string(Problem(p_)); }

  void run(const RunArgs& args) const override {
    const TensorRef &x = args.inputs[0], &w = args.inputs[1], &y = args.outputs[0];
    ConvArguments arguments;
    arguments.elements = y.numel();
    if (arguments.elements == 0) return;
    arguments.rank = static_cast<int>(y.sizes.size());
    std::copy(y.sizes.begin(), y.sizes.end(), arguments.sizes);
    std::copy(x.sizes.begin() + 2, x.sizes.end(), arguments.in);
    std::copy(w.sizes.begin() + 2, w.sizes.end(), arguments.kernel);
    std::copy(p_.strides.begin(), p_.strides.end(), arguments.stride);
    std::copy(p_.dilations.begin(), p_.dilations.end(), arguments.dilation);
    std::copy(p_.pads_begin.begin(), p_.pads_begin.end(), arguments.pad);
    arguments.depth = x.sizes[1] / p_.group;
    arguments.columns = y.sizes[1] / p_.group;
    arguments.x = view_of(x, y.sizes);
    arguments.w = view_of(w, y.sizes);
    arguments.y = view_of(y, y.sizes);
    if (p_.has_bias) {
      arguments.bias.data = args.inputs[2].data;
      arguments.bias.type = static_cast<int>(args.inputs[2].dtype);
      arguments.bias.strides[0] = args.inputs[2].strides[0];
    }
    if (p_.x_zero >= 0) arguments.x_zero = static_cast<const int*>(args.inputs[p_.x_zero].data);
    arguments.post = steps_of(p_.post_ops, args.inputs, y.sizes);
    int64_t transposed = p_.transposed;
    void* pointers[] = {&arguments, &transposed};
    kernel_.launch(*args.stream, shape_of_elements(arguments.elements, kernel_.properties()), pointers);
  }

private:
  ConvProblem p_;
  LoopKernel kernel_;
};

} // namespace

std::string supports_reference_conv(const Problem&, std::span<const OperandInfo>,
                                    std::span<const OperandInfo>, const Target&);

std::string supports_cuda_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                               std::span<const OperandInfo> outputs, const device::Properties&) {
  const auto& p = std::get<ConvProblem>(problem);
  if (std::string reason = loops_refuse(inputs, outputs, p.post_ops); !reason.empty()) return reason;
  return supports_reference_conv(problem, inputs, outputs, {});
}

std::unique_ptr<ExternKernel> make_cuda_conv(device::Device& device, const Problem& problem,
                                             std::span<const OperandInfo> inputs,
                                             std::span<const OperandInfo> outputs) {
  return std::make_unique<LoopConv>(device, std::get<ConvProblem>(problem), inputs, outputs);
}

} // namespace tbx::extern_kernels
