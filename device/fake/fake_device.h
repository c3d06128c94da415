// A device for tests without a GPU (TBX_FAKE_CUDA=1). Its memory is host memory that host code cannot touch
// while no work of the device runs; streams do their work when somebody waits for it, so a missing wait
// shows; a graph's work is done in an order drawn from those that it allows, so a missing edge shows; kernels
// run in the emulator.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "device/device.h"

namespace tbx::device {

std::shared_ptr<Device> make_fake_device(int number = 0);
bool is_fake(const Device& device);

/// What streams of a fake device were asked for so far: tests count what a run costs on a GPU.
struct FakeCounts {
  size_t launches = 0;  ///< kernels started one by one
  size_t copied = 0;    ///< copies to, from and on the device, as they come or are recorded
  size_t early = 0;     ///< kernels asked for that may start before the one before them ends
  size_t recorded = 0;  ///< graphs
  size_t started = 0;   ///< graphs
  size_t updated = 0;   ///< kernels of graphs that got other arguments
  size_t forked = 0;    ///< recorded work that does not wait for what was recorded before it
  size_t marked = 0;    ///< events that a stream came to be asked for
  size_t queried = 0;   ///< events: whether they are reached
  size_t waited = 0;    ///< streams that were made to wait for events
  size_t located = 0;   ///< addresses that were looked up
  size_t adopted = 0;   ///< streams of callers
  size_t allocated = 0; ///< blocks of memory, of the device and of the host
};
FakeCounts counts_of(const Device& device);
/// From now on graphs of the device cannot be changed, as a driver may refuse it; or can again.
void refuse_updates(const Device& device, bool refuse);

/// Work of a fake device's stream that is a function of ours: it may touch the device's memory, and stands
/// for a library's kernel.
void run_on_host(Stream& stream, std::function<void()> work);

} // namespace tbx::device
