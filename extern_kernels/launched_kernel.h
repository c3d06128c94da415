// LaunchedKernel: a kernel of a device that asks its stream for nothing but starts of kernels of ours. A
// graph that was recorded of it takes other sizes by other arguments (device::Stream::begin_update). What a
// library starts for other sizes are other kernels, which nobody but the library knows.
#pragma once

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

class LaunchedKernel : public ExternKernel {};

inline bool is_launched(const ExternKernel& kernel) {
  return dynamic_cast<const LaunchedKernel*>(&kernel) != nullptr;
}

} // namespace tbx::extern_kernels
