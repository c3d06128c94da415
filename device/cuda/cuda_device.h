// NVIDIA GPUs.
#pragma once

#include <memory>

#include "device/device.h"

namespace tbx::device {

/// GPU `number` as the driver counts. Throws BackendError when there is no driver or no such GPU.
std::shared_ptr<Device> make_cuda_device(int number);

} // namespace tbx::device
