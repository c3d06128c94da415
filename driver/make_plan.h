// Make plan: Schedule + emitted kernels -> runtime::Executable, which is data: no kernel is built or chosen
// here.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "codegen/emit.h"
#include "fusion/schedule.h"
#include "runtime/executable.h"

namespace tbx::driver {

/// Facts about one step for `tbx explain`.
struct StepInfo {
  std::string name, kind; ///< kind: "generated", "extern", "evaluated" or "copy"
  std::vector<int> origins;
  std::vector<std::string> decisions;
  int64_t bytes = 0; ///< moved, at size hints
  double flops = 0;
};

/// A kernel for the evaluator, and its name.
using NamedProgram = std::pair<std::string, ir::KernelProgram>;

struct PlanResult {
  runtime::Executable executable;
  std::vector<StepInfo> steps; ///< extern ones are named when their kernels are chosen
  std::vector<NamedProgram> evaluated;
};

/// `emitted[g]` belong to the kernel groups of the schedule (empty: everything is evaluated; an empty
/// function name: that kernel is evaluated).
PlanResult make_plan(const fusion::Schedule& schedule, const std::vector<codegen::EmittedKernel>& emitted);

/// Sets first_step and last_step of all buffers.
void set_lifetimes(runtime::Executable& executable);

/// Postfix program of a size; needs an expression free of loop variables and indirect values.
runtime::SizeExpr size_expr(ir::SymInt e);

} // namespace tbx::driver
