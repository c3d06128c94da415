#include "runtime/device_checks.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "runtime/bound_device.h"
#include "runtime/failed_check.h"

namespace tbx::runtime {
namespace {

/// As `failed` of codegen/prelude/cuda.inc knows it.
struct Slot {
  int64_t number = 0;             ///< of the check that failed first; 0: none did
  FailedCheck* told_to = nullptr; ///< by that one
};

} // namespace

DeviceChecks::DeviceChecks(const BoundExecutable& bound, device::Stream& stream) : bound_(bound) {
  const BoundDevice& on = *bound.on_device;
  if (on.num_check_slots == 0) return;
  const auto count = static_cast<size_t>(on.num_check_slots);
  slots_ = on.device->allocate(count * sizeof(Slot));
  found_ = on.device->allocate_staging(count * sizeof(FailedCheck));
  forget(stream);
}

void* DeviceChecks::slot_of(size_t step) const {
  const int slot = bound_.on_device->check_slots[step];
  return slot < 0 ? nullptr : static_cast<Slot*>(slots_->data()) + slot;
}

void DeviceChecks::throw_found(device::Stream& stream) {
  if (!any()) return;
  const Executable& plan = *bound_.executable;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const int slot = bound_.on_device->check_slots[s];
    if (slot < 0) continue;
    const FailedCheck failed = static_cast<const FailedCheck*>(found_->data())[slot];
    if (failed.number == 0) continue;
    Error e = error_of(plan, std::get<KernelStep>(plan.steps[s].what), failed);
    e.set_where(nodes_of(plan, plan.steps[s].origins));
    forget(stream);
    throw e;
  }
}

void DeviceChecks::forget(device::Stream& stream) {
  std::memset(found_->data(), 0, found_->bytes());
  std::vector<Slot> slots(found_->bytes() / sizeof(FailedCheck));
  for (size_t s = 0; s < slots.size(); ++s) slots[s].told_to = static_cast<FailedCheck*>(found_->data()) + s;
  stream.upload(slots_->data(), slots.data(), slots.size() * sizeof(Slot));
  stream.synchronize();
}

} // namespace tbx::runtime
