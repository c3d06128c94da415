#include "runtime/step_info.h"

namespace tbx::runtime {

double flops_of(const StepInfo& step, std::span<const int64_t> symbols) {
  double flops = 0;
  for (const NestWork& nest : step.work) {
    double points = nest.each;
    for (const SizeExpr& size : nest.sizes) points *= static_cast<double>(size.evaluate(symbols));
    flops += points;
  }
  return flops;
}

} // namespace tbx::runtime
