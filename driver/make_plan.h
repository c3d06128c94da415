// Make plan: Schedule + built kernels -> runtime::Plan. The last compile step; knows both sides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/build_module.h"
#include "codegen/emit.h"
#include "fusion/schedule.h"
#include "runtime/plan.h"

namespace tbx::driver {

/// Facts about one step for `tbx explain`.
struct StepInfo {
  std::string name, kind; ///< kind: "generated", "extern" or "evaluated"
  std::vector<int> origins;
  std::vector<std::string> decisions;
  int64_t bytes = 0; ///< moved, at size hints
  double flops = 0;
};

struct PlanResult {
  std::shared_ptr<runtime::Plan> plan;
  std::vector<StepInfo> steps;
};

/// `emitted[g]` and `module` belong to the kernel groups of the schedule (both empty: everything is
/// evaluated; an empty function name: that kernel is evaluated). `kernels` compute the extern calls.
PlanResult make_plan(const fusion::Schedule& schedule, const std::vector<codegen::EmittedKernel>& emitted,
                     const std::shared_ptr<codegen::Module>& module,
                     extern_kernels::Kernels kernels = extern_kernels::Kernels::fastest);

/// Postfix program of a size; needs an expression free of loop variables and indirect values.
runtime::SizeExpr size_expr(ir::SymInt e);

} // namespace tbx::driver
