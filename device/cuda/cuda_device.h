// NVIDIA GPUs.
#pragma once

#include <memory>

#include "device/device.h"

namespace tbx::device {

namespace cuda {
class ContextOwner;
}

/// GPU `number` as the driver counts. Throws BackendError when there is no driver or no such GPU.
std::shared_ptr<Device> make_cuda_device(int number);
/// The context of a device made here.
std::shared_ptr<const cuda::ContextOwner> context_of(const Device& device);

} // namespace tbx::device
