// BoundDevice: what of a bound executable belongs to its device.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "runtime/device_edges.h"
#include "runtime/executable.h"
#include "runtime/recorded_again.h"

namespace tbx::runtime {

/// A device, and the generated kernels that were loaded on it.
struct DeviceModule {
  std::shared_ptr<device::Device> device;
  std::shared_ptr<device::Module> kernels; ///< null where no step needs one
};

struct BoundDevice {
  std::shared_ptr<device::Device> device;
  std::shared_ptr<device::Module> module;
  std::vector<device::Kernel> kernels;    ///< by step
  std::unique_ptr<device::Memory> memory; ///< of all constants
  std::vector<void*> constants; ///< by constant: its elements on the device, where a step there reads it
  std::vector<int> check_slots; ///< by step: where its checks report a FailedCheck; -1: it has none
  int num_check_slots = 0;
  bool starts_early = false; ///< Properties::starts_early
  PlanEdges edges;
  /// Steps [first, last) run on the device without the host: they are recorded once and replayed as a whole.
  /// The copies of inputs come before, those of outputs behind. Both 0 where the host has work, too.
  int first_recorded = 0, last_recorded = 0;
  RecordedAgain recorded_again; ///< in runs so far
  bool is_recorded() const { return last_recorded > 0; }
};

/// Null for an executable of the host alone. Uploads constants. Throws BackendError.
std::shared_ptr<const BoundDevice> bind_device(const Executable& executable, const DeviceModule& on);

} // namespace tbx::runtime
