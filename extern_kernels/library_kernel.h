// LibraryKernel: an extern kernel whose library decides per set of sizes how it computes.
#pragma once

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

class LibraryKernel : public ExternKernel {
public:
  /// What the library took for the sizes seen so far, each once, with what was refused. For explain.
  virtual std::vector<std::string> implementations() const = 0;
  /// Whether the first run of its sizes measures several ways, which may be done ahead, with other operands
  /// of these sizes and any contents.
  virtual bool measures() const { return false; }
};

} // namespace tbx::extern_kernels
