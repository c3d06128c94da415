// Make plan: Schedule + emitted kernels -> runtime::Executable, which is data: no kernel is built or chosen
// here.
#pragma once

#include <string>
#include <vector>

#include "codegen/emit.h"
#include "fusion/schedule.h"
#include "ir/kernel_file.h"
#include "runtime/executable.h"
#include "runtime/step_info.h"

namespace tbx::driver {

using runtime::StepInfo;

using ir::NamedKernel;

struct PlanResult {
  runtime::Executable executable;
  std::vector<StepInfo> steps;        ///< extern ones are named when their kernels are chosen
  std::vector<NamedKernel> evaluated; ///< kernels for the evaluator
};

/// `emitted[g]` belong to the kernel groups of the schedule (empty: everything is evaluated; an empty
/// function name: that kernel is evaluated).
PlanResult make_plan(const fusion::Schedule& schedule, const std::vector<codegen::EmittedKernel>& emitted);

/// Sets first_step and last_step of all buffers.
void set_lifetimes(runtime::Executable& executable);

/// Postfix program of a size; needs an expression free of loop variables and indirect values.
runtime::SizeExpr size_expr(ir::SymInt e);

} // namespace tbx::driver
