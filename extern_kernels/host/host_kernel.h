// Host kernels: operators without a loop-nest form, one function each, found by name.
#pragma once

#include <algorithm>
#include <string_view>

#include "extern_kernels/host_attribute.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// One call: attributes with defaults filled in, dense row-major inputs.
struct HostCall {
  const HostProblem& problem;
  const RunArgs& args;

  const TensorRef& in(int i) const { return args.inputs[i]; }
  bool has(int i) const { return i < static_cast<int>(args.inputs.size()) && args.inputs[i].data != nullptr; }
  const TensorRef& out(int i) const { return args.outputs[i]; }
  /// Memory of output `i` of a data-dependent kernel.
  void* make(int i, std::span<const int64_t> sizes) const {
    return args.allocator->allocate(i, problem.output_types[i], sizes);
  }
  int64_t integer(const char* name) const { return attribute<int64_t>(problem, name); }
  double real(const char* name) const { return attribute<double>(problem, name); }
  const std::string& text(const char* name) const { return attribute<std::string>(problem, name); }
  bool has_attribute(const char* name) const { return problem.attributes.count(name) != 0; }
};

using HostFunction = void (*)(const HostCall&);

/// Makes a kernel that prepares something from its attributes once (trees, tables), not in every run.
using HostMaker = std::unique_ptr<ExternKernel> (*)(const HostProblem&);

/// Whether there is one (extern_kernels/host/host_kernels.inc lists them).
bool find_host_kernel(std::string_view domain, std::string_view op);

/// A tensor seen as [outer, axis, inner]. Without elements it has no outer ones, however many its sizes make:
/// they cost no memory, and a loop over them would have no end.
struct AxisView {
  int64_t outer = 1, length = 1, inner = 1;
  AxisView(std::span<const int64_t> sizes, int64_t axis) {
    TBX_MODEL(axis >= 0 && axis < static_cast<int64_t>(sizes.size()), "axis {} of {}: the package is damaged",
              axis, sizes.size());
    length = sizes[axis];
    if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) outer = 0;
    for (int64_t d = 0; d < axis && outer > 0; ++d) outer *= sizes[d];
    for (auto d = static_cast<size_t>(axis) + 1; d < sizes.size() && outer > 0; ++d) inner *= sizes[d];
  }
};

} // namespace tbx::extern_kernels
