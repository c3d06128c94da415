// Matrix products on a GPU by plain loops: a thread for an element of the result.
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/cuda/plain.h"

namespace tbx::extern_kernels {

using namespace cuda;

namespace {

class LoopProduct final : public ExternKernel {
public:
  LoopProduct(device::Device& device, const MatMulProblem& p, std::span<const OperandInfo> inputs,
              std::span<const OperandInfo> outputs)
      : p_(p), kernel_(device, Loop::product, inputs[0].dtype, inputs[1].dtype, outputs[0].dtype) {}

  std::string description() const override { return "plain loops " + to_string(Problem(p_)); }

  void run(const RunArgs& args) const override {
    const TensorRef &a = args.inputs[0], &c = args.outputs[0];
    ProductArguments arguments;
    arguments.elements = c.numel();
    if (arguments.elements == 0) return;
    arguments.terms = a.sizes.back();
    arguments.rank = static_cast<int>(c.sizes.size());
    std::copy(c.sizes.begin(), c.sizes.end(), arguments.sizes);
    arguments.a = view_of(a, c.sizes);
    arguments.b = view_of(args.inputs[1], c.sizes);
    arguments.c = view_of(c, c.sizes);
    if (p_.has_bias) arguments.bias = view_of(args.inputs[2], c.sizes);
    auto zero = [&](int number) {
      return number >= 0 ? static_cast<const int*>(args.inputs[number].data) : nullptr;
    };
    arguments.a_zero = zero(p_.a_zero);
    arguments.b_zero = zero(p_.b_zero);
    arguments.alpha = p_.alpha;
    arguments.post = steps_of(p_.post_ops, args.inputs, c.sizes);
    void* pointers[] = {&arguments};
    kernel_.launch(*args.stream, shape_of_elements(arguments.elements, kernel_.properties()), pointers);
  }

private:
  MatMulProblem p_;
  LoopKernel kernel_;
};

} // namespace

std::string supports_reference_matmul(const Problem&, std::span<const OperandInfo>,
                                      std::span<const OperandInfo>, const Target&);

std::string supports_cuda_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                 std::span<const OperandInfo> outputs, const device::Properties&) {
  const auto& p = std::get<MatMulProblem>(problem);
  if (std::string reason = loops_refuse(inputs, outputs, p.post_ops); !reason.empty()) return reason;
  return supports_reference_matmul(problem, inputs, outputs, {});
}

std::unique_ptr<ExternKernel> make_cuda_matmul(device::Device& device, const Problem& problem,
                                               std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs) {
  return std::make_unique<LoopProduct>(device, std::get<MatMulProblem>(problem), inputs, outputs);
}

} // namespace tbx::extern_kernels
