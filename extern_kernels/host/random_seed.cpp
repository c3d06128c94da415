// RandomSeed: the key of one draw of a random operator. It is a step of the plan, so that every run and every
// iteration has one of its own, and the numbers themselves come from generated code.
#include "base/random_streams.h"
#include "extern_kernels/host/host_kernel.h"

namespace tbx::extern_kernels {

void run_random_seed(const HostCall& call) {
  std::optional<uint64_t> fixed;
  if (call.has_attribute("seed")) fixed = static_cast<uint64_t>(call.integer("seed"));
  *static_cast<int64_t*>(call.out(0).data) =
      static_cast<int64_t>(next_seed(static_cast<uint64_t>(call.integer("stream")), fixed));
}

} // namespace tbx::extern_kernels
