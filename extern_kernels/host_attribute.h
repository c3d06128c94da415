// What lowering states of a host kernel's call, read where the call may come out of a file.
#pragma once

#include "base/error.h"
#include "extern_kernels/problem.h"

namespace tbx::extern_kernels {

/// Lowering writes every attribute of a call: one that is not there, or of another type, is a package's
/// fault.
template <class T> const T& attribute(const HostProblem& problem, const char* name) {
  const auto found = problem.attributes.find(name);
  const T* value = found == problem.attributes.end() ? nullptr : std::get_if<T>(&found->second);
  TBX_MODEL(value, "a call of {} does not say its {}: the package is damaged", problem.op, name);
  return *value;
}

} // namespace tbx::extern_kernels
