// Products of one row with what comes before and behind them, by plain loops.
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "extern_kernels/reference/dense.h"
#include "extern_kernels/reference/host.h"
#include "extern_kernels/reference/row_work.h"

namespace tbx::extern_kernels {
namespace {

void row_product(const RowProductProblem& p, const RunArgs& args) {
  const std::span<const TensorRef> in = args.inputs;
  auto optional = [&](size_t i) {
    return in.size() > i && in[i].data ? to_dense<double>(in[i]) : std::vector<double>();
  };
  std::vector<double> x = to_dense<double>(in[0]), sums = optional(2);
  const std::vector<double> w = to_dense<double>(in[1]);
  norm_row(p.work, x, optional(3), optional(4));
  const auto n = static_cast<size_t>(in[1].sizes[1]);
  sums.resize(n, 0);
  constexpr size_t kColumns = 64; // of a task
  tbb::parallel_for(tbb::blocked_range<size_t>(0, n, kColumns), [&](const tbb::blocked_range<size_t>& part) {
    for (size_t k = 0; k < x.size(); ++k)
      for (size_t j = part.begin(); j < part.end(); ++j) sums[j] += x[k] * w[k * n + j];
  });
  from_dense(finish_row(p.work, std::move(sums)), args.outputs[0]);
}

} // namespace

std::string supports_reference_row_product(const Problem&, std::span<const OperandInfo>,
                                           std::span<const OperandInfo>, const Target&) {
  return {};
}

std::unique_ptr<ExternKernel> make_reference_row_product(const Problem& p, std::span<const OperandInfo>,
                                                         std::span<const OperandInfo>) {
  return std::make_unique<PlainKernel<RowProductProblem>>(p, row_product);
}

} // namespace tbx::extern_kernels
