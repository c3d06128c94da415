// Streams, events and graphs of one CUDA context.
#pragma once

#include <memory>

#include "device/cuda/driver.h"
#include "device/device.h"

namespace tbx::device::cuda {

/// Holds the primary context of a GPU.
class ContextOwner {
public:
  explicit ContextOwner(int number);
  ~ContextOwner();
  ContextOwner(const ContextOwner&) = delete;
  ContextOwner& operator=(const ContextOwner&) = delete;
  Context context() const { return context_; }
  DeviceNumber device() const { return device_; }

private:
  DeviceNumber device_ = 0;
  Context context_ = nullptr;
};

/// Makes the context that of this thread, to the end of the scope: the caller's own stays as it was.
class Current {
public:
  explicit Current(const ContextOwner& owner);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

private:
  bool pushed_ = false; ///< it was not already
};

std::unique_ptr<Stream> make_stream(std::shared_ptr<const ContextOwner> context);
/// A stream that somebody else owns.
std::unique_ptr<Stream> adopt_stream(std::shared_ptr<const ContextOwner> context, void* handle);
/// For libraries, which take a stream by the driver's handle.
StreamHandle handle_of(const Stream& stream);
/// The stream records a graph: nothing may wait for the device now.
bool is_capturing(const Stream& stream);
std::unique_ptr<Event> make_event(std::shared_ptr<const ContextOwner> context);
void record_all(const ContextOwner& context, Event& event);
bool is_reached(const Event& event);
void wait(const Event& event);
double elapsed_ms(const Event& from, const Event& to);

} // namespace tbx::device::cuda
