// Plain forms of host kernels that a library or tuned code computes otherwise.
#pragma once

#include <string_view>

#include "extern_kernels/host_attribute.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// A plain kernel of problems of type P: `run` is all there is to it.
template <class P> class PlainKernel : public ExternKernel {
public:
  using Function = void (*)(const P&, const RunArgs&);
  PlainKernel(const Problem& p, Function function) : p_(std::get<P>(p)), function_(function) {}
  std::string description() const override { return "reference " + to_string(Problem(p_)); }
  void run(const RunArgs& args) const override { function_(p_, args); }

private:
  P p_;
  Function function_;
};
using PlainHost = PlainKernel<HostProblem>;

inline bool is_host(const Problem& p, std::string_view domain, std::string_view op) {
  const auto& host = std::get<HostProblem>(p);
  return host.domain == domain && host.op == op && !host.custom;
}

} // namespace tbx::extern_kernels
