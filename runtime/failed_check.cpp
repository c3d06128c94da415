#include "runtime/failed_check.h"

#include <fmt/format.h>

namespace tbx::runtime {

Error error_of(const Executable& plan, const KernelStep& step, const FailedCheck& failed) {
  Error e(ErrorKind::model,
          fmt::format("index {} is outside an axis of size {}", failed.index, failed.extent));
  const auto check = static_cast<size_t>(failed.number - 1);
  if (check < step.check_origins.size() && step.check_origins[check] >= 0)
    e.set_where(nodes_of(plan, {&step.check_origins[check], 1}));
  return e;
}

} // namespace tbx::runtime
