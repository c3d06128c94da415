// FailedCheck: an index of a generated kernel that lies outside of its axis.
#pragma once

#include "base/error.h"
#include "runtime/executable.h"

namespace tbx::runtime {

/// As kernels of devices report it. Those of the CPU return the number, and leave the rest in their scratch
/// (runtime/abi.h).
struct FailedCheck {
  int64_t number = 0; ///< of the check, from 1 on; 0: none failed
  int64_t index = 0, extent = 0;
};

/// ModelError that names the node which the check is for, where it is known.
Error error_of(const Executable& plan, const KernelStep& step, const FailedCheck& failed);

} // namespace tbx::runtime
