// Kernels of which some runs are the work of one thread.
#pragma once

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// What an ExternKernel is besides.
class SerialKernel {
public:
  virtual ~SerialKernel() = default;
  /// Whether a run with these operands does all of its work in the thread that calls it. Such a run needs no
  /// arena, which takes as long to enter and to leave as the least of them last.
  virtual bool is_serial(std::span<const TensorRef> inputs, std::span<const TensorRef> outputs) const = 0;
};

} // namespace tbx::extern_kernels
