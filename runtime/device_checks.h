// DeviceChecks: what the checks in the kernels of a run on a device found wrong. The first check of a step
// that fails tells the host by a store into page-locked memory, so that a run in which none fails copies
// nothing.
#pragma once

#include <cstddef>
#include <memory>

#include "device/device.h"
#include "runtime/bind.h"

namespace tbx::runtime {

/// Of one DeviceContext. What was found stays until it was thrown, so no run has to begin by clearing it.
class DeviceChecks {
public:
  DeviceChecks(const BoundExecutable& bound, device::Stream& stream);
  /// Whether a kernel of the plan checks anything.
  bool any() const { return slots_ != nullptr; }
  /// Where the kernel of a step reports: memory of the device; null where it checks nothing.
  void* slot_of(size_t step) const;
  /// Throws (ModelError) what the first step found that failed, as a run on the host would have ended there,
  /// and forgets all. No run may be on its way.
  void throw_found(device::Stream& stream);

private:
  void forget(device::Stream& stream);

  const BoundExecutable& bound_;
  std::unique_ptr<device::Memory> slots_; ///< of the device: a Slot each, or null
  std::unique_ptr<device::Memory> found_; ///< of the host: a FailedCheck each
};

} // namespace tbx::runtime
