// A run of library kernels without their work, in which they compile and load what they need.
#pragma once

#include <functional>
#include <vector>

#include "extern_kernels/kernel.h"

namespace tbx::runtime {

/// A call of a library kernel of a device, with its operands where the run has them.
struct RehearsedCall {
  const extern_kernels::ExternKernel* kernel = nullptr;
  std::vector<extern_kernels::TensorRef> inputs, outputs;
  void* workspace = nullptr;
};

/// Calls all of them side by side on a stream that does nothing, so that their texts are compiled at the same
/// time and not one after the other by the run. What goes wrong does so again in the run, which says where.
void rehearse(const std::vector<RehearsedCall>& calls);

} // namespace tbx::runtime
