// What stands in for a library's kernel on the fake device: the plain kernel of the CPU, as work of the
// stream.
#pragma once

#include <memory>
#include <string>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// `candidate`: for which one it stands. `launched`: that is a LaunchedKernel.
std::unique_ptr<ExternKernel> make_fake_kernel(const std::string& candidate, bool launched,
                                               const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs);

} // namespace tbx::extern_kernels
