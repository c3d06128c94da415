// Products of many rows with a constant matrix, for CPUs on which the library packs the matrix in every run.
#include <fmt/format.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include "base/isa.h"
#include "extern_kernels/product/run.h"

namespace tbx::extern_kernels {
namespace product {
namespace {

constexpr double kInline = 1 << 17; ///< factors that take as long as waking a thread

class BlockedMatMul : public ExternKernel {
public:
  BlockedMatMul(const MatMulProblem& p, const OperandInfo& b) : p_(p), weights_(b) {
    if (p.alpha != 1) work_.push_back({PostOp::linear, p.alpha, 0});
    if (p.has_bias) work_.push_back({PostOp::add, 0, 0, 2});
    work_.insert(work_.end(), p.post_ops.begin(), p.post_ops.end());
  }

  std::string description() const override {
    return fmt::format("own tiles of {} x {}, {}", weights_.tile().rows, weights_.tile().columns,
                       to_string(Problem(p_)));
  }
  int64_t packed_bytes() const override { return weights_.bytes(); }

  bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const override {
    return static_cast<double>(outputs[0].numel()) * static_cast<double>(inputs[0].sizes.back()) < kInline;
  }

  void run(const RunArgs& args) const override {
    if (args.outputs[0].numel() == 0) return;
    const bool alone = is_serial(args.inputs, args.outputs);
    const Run run(weights_, work_, args, alone ? 1 : tbb::this_task_arena::max_concurrency());
    if (alone || run.tasks() == 1)
      for (int64_t i = 0; i < run.tasks(); ++i) run.task(i);
    else
      tbb::parallel_for(int64_t{0}, run.tasks(), [&](int64_t i) { run.task(i); });
  }

private:
  MatMulProblem p_;
  Weights weights_;
  std::vector<PostOp> work_; ///< all that is done with a sum
};

/// Known strides, none of which repeats or turns around.
bool is_plain(const OperandInfo& t) {
  if (t.strides.size() != t.sizes.size()) return false;
  for (size_t d = 0; d < t.sizes.size(); ++d)
    if (t.sizes[d] != 1 && t.strides[d] < 1) return false;
  return true;
}

} // namespace
} // namespace product

std::string supports_blocked_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs) {
  const auto& p = std::get<MatMulProblem>(problem);
  const OperandInfo& b = inputs[1];
  if (p.a_zero >= 0 || p.b_zero >= 0) return "zero points";
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].dtype != DType::f32 && inputs[i].dtype != DType::undefined && !(i == 1 && is_half(b.dtype)))
      return fmt::format("{} operands", name_of(inputs[i].dtype));
  if (outputs[0].dtype != DType::f32) return fmt::format("a {} result", name_of(outputs[0].dtype));
  if (!b.constant) return "no constant matrix";
  if (!product::is_plain(b) || b.constant->numel() == 0) return "an empty or repeated matrix";
  constexpr int64_t kFew = 8; // panels would be mostly empty
  if (b.sizes.back() < kFew) return fmt::format("less than {} columns", kFew);
  if (host_isa() != Isa::avx2)
    return "for CPUs with AVX2 and without AVX-512, where the library packs the matrix in every run";
  return {};
}

std::unique_ptr<ExternKernel> make_blocked_matmul(const Problem& problem, std::span<const OperandInfo> inputs,
                                                  std::span<const OperandInfo>) {
  return std::make_unique<product::BlockedMatMul>(std::get<MatMulProblem>(problem), inputs[1]);
}

} // namespace tbx::extern_kernels
