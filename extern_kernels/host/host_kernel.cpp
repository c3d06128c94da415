#include "extern_kernels/host/host_kernel.h"

#include <fmt/format.h>

#include <array>

namespace tbx::extern_kernels {

#define TBX_HOST(domain, op, function) void function(const HostCall&);
#include "extern_kernels/host/host_kernels.inc"
#undef TBX_HOST

namespace {

struct Entry {
  std::string_view domain, op;
  HostFunction function;
};

constexpr std::array kEntries = {
#define TBX_HOST(domain, op, function) Entry{domain, op, function},
#include "extern_kernels/host/host_kernels.inc"
#undef TBX_HOST
};

class HostKernel : public ExternKernel {
public:
  explicit HostKernel(const HostProblem& p) : p_(p), function_(find_host_kernel(p.domain, p.op)) {}
  std::string description() const override { return "host " + to_string(Problem(p_)); }
  void run(const RunArgs& args) const override { function_({p_, args}); }

private:
  HostProblem p_;
  HostFunction function_;
};

} // namespace

HostFunction find_host_kernel(std::string_view domain, std::string_view op) {
  for (const Entry& e : kEntries)
    if (e.domain == domain && e.op == op) return e.function;
  return nullptr;
}

std::string supports_host_kernel(const Problem& problem, std::span<const OperandInfo>,
                                 std::span<const OperandInfo>) {
  const auto& p = std::get<HostProblem>(problem);
  return find_host_kernel(p.domain, p.op) ? "" : fmt::format("no host kernel for {}", p.op);
}

std::unique_ptr<ExternKernel> make_host_kernel(const Problem& problem, std::span<const OperandInfo>,
                                               std::span<const OperandInfo>) {
  return std::make_unique<HostKernel>(std::get<HostProblem>(problem));
}

} // namespace tbx::extern_kernels
