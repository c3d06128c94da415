// Place: decides where each step of a plan runs, and puts copies between the host and the device.
#pragma once

#include <string>
#include <vector>

#include "codegen/emit.h"
#include "device/device.h"
#include "driver/make_plan.h"

namespace tbx::driver {

/// `emitted` are the generated kernels of the plan in the order of their steps. They run on the device where
/// they are among `for_device`, which were emitted for it; library problems where a library kernel of the
/// device takes them. All else stays on the host, and its StepInfo
/// says why. Inputs are copied first, outputs last. Throws BackendError where a library of the device is
/// missing.
void place(PlanResult& plan, const std::vector<codegen::EmittedKernel>& emitted,
           const std::vector<codegen::EmittedKernel>& for_device, device::Device& device);

} // namespace tbx::driver
