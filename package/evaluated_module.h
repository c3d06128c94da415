// Evaluated module: kernels that run in the evaluator (ir/evaluate.h), as a module that an executable is
// bound to.
#pragma once

#include <memory>
#include <vector>

#include "ir/kernel_file.h"
#include "runtime/module.h"

namespace tbx::package {

enum class KernelsFrom {
  here, ///< made in this process: what does not fit is a defect
  file, ///< read from a package, which may be damaged
};

std::shared_ptr<const runtime::Module> evaluated_module(std::vector<ir::NamedKernel> kernels,
                                                        KernelsFrom from);

} // namespace tbx::package
