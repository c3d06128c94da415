// A device for tests without a GPU (TBX_FAKE_CUDA=1). Its memory is host memory that host code cannot touch
// while no work of the device runs; streams do their work when somebody waits for it, so a missing wait
// shows; kernels run in the emulator.
#pragma once

#include <functional>
#include <memory>

#include "device/device.h"

namespace tbx::device {

std::shared_ptr<Device> make_fake_device(int number = 0);
bool is_fake(const Device& device);

/// Work of a fake device's stream that is a function of ours: it may touch the device's memory, and stands
/// for a library's kernel.
void run_on_host(Stream& stream, std::function<void()> work);

} // namespace tbx::device
