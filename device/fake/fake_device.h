// A device for tests without a GPU (TBX_FAKE_CUDA=1). Its memory is host memory that host code cannot touch
// while no work of the device runs; streams do their work when somebody waits for it, so a missing wait
// shows; kernels run in the emulator.
#pragma once

#include <memory>

#include "device/device.h"

namespace tbx::device {

std::shared_ptr<Device> make_fake_device();

} // namespace tbx::device
