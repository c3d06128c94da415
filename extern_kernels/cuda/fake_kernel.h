// What stands in for a library's kernel on the fake device: the plain kernel of the CPU, as work of the
// stream.
#pragma once

#include <memory>
#include <string>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// What the candidate is for which it stands.
struct Impersonated {
  std::string name;
  bool launched = false; ///< a LaunchedKernel
  bool tf32 = false;     ///< it rounds the two factors to TF32
};

std::unique_ptr<ExternKernel> make_fake_kernel(const Impersonated& candidate, const Problem& problem,
                                               std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs);

} // namespace tbx::extern_kernels
