// Products of many rows with a constant matrix, for CPUs on which the library packs the matrix in every run,
// or waits for it.
#include "extern_kernels/product/call.h"

namespace tbx::extern_kernels {
namespace product {
namespace {

class BlockedMatMul : public ExternKernel {
public:
  BlockedMatMul(const MatMulProblem& p, const OperandInfo& b)
      : p_(p), call_(b, p.alpha, p.has_bias, p.post_ops) {}

  std::string description() const override { return call_.description(p_); }
  int64_t packed_bytes() const override { return call_.packed_bytes(); }
  bool reads(size_t input) const override { return input != 1; }
  bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const override {
    return Call::is_serial(outputs[0].numel(), inputs[0].sizes.back());
  }
  void run(const RunArgs& args) const override { call_.run(args); }

private:
  MatMulProblem p_;
  Call call_;
};

} // namespace
} // namespace product

std::string supports_blocked_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs, const Target& target) {
  const auto& p = std::get<MatMulProblem>(problem);
  if (p.a_zero >= 0 || p.b_zero >= 0) return "zero points";
  return product::refusal(inputs, outputs[0], outputs[0].sizes.size() - 1, target);
}

std::unique_ptr<ExternKernel> make_blocked_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                                  std::span<const OperandInfo>) {
  return std::make_unique<product::BlockedMatMul>(std::get<MatMulProblem>(problem), inputs[1]);
}

} // namespace tbx::extern_kernels
