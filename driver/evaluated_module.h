// Evaluated module: kernels that run in the evaluator (ir/evaluate.h), as a module that an executable is
// bound to.
#pragma once

#include <memory>
#include <vector>

#include "driver/make_plan.h"
#include "runtime/module.h"

namespace tbx::driver {

std::shared_ptr<const runtime::Module> evaluated_module(std::vector<NamedProgram> kernels);

} // namespace tbx::driver
