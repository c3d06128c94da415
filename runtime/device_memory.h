// Memory of one run on a device: pieces of the device's memory, and of page-locked memory for copies.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/device.h"

namespace tbx::runtime {

/// Page-locked memory that is handed out piece by piece and taken back as a whole.
class Staging {
public:
  explicit Staging(device::Device& device) : device_(device) {}
  std::byte* get(size_t bytes);
  /// Nothing that was handed out is used any more. Memory of a size that was needed at once is kept.
  void reset();
  size_t bytes() const;

private:
  device::Device& device_;
  std::vector<std::unique_ptr<device::Memory>> blocks_; ///< the last one has room
  size_t used_ = 0;                                     ///< of the last one
};

/// Device memory for results whose sizes a run finds out. What one step gave back another takes: all work of
/// a context is done in order.
class DevicePool {
public:
  explicit DevicePool(device::Device& device) : device_(device), idle_(std::make_shared<Idle>()) {}
  std::shared_ptr<void> get(size_t bytes);
  /// Gives back to the device what nobody uses and is more than runs should keep. The device must have done
  /// its work.
  void trim();

private:
  using Idle = std::multimap<size_t, std::shared_ptr<device::Memory>>; ///< by size
  device::Device& device_;
  std::shared_ptr<Idle> idle_;
};

/// A block of device memory that a caller holds: an output of a run, or a copy of what was the host's.
class OutputBlock {
public:
  /// A block that goes to nobody else.
  static std::shared_ptr<OutputBlock> make(std::shared_ptr<device::Device> device, size_t bytes);
  ~OutputBlock();
  void* data() const { return memory_->data(); }
  const std::shared_ptr<device::Device>& device() const { return device_; }
  /// Work of a stream, by its handle, uses the block: nobody else does before that is done.
  void used_on(void* stream);
  /// What fills it is work of that stream.
  void made_on(void* stream);
  /// `stream` waits for what fills it.
  void wait_on(device::Stream& stream) const;
  /// The handle of the stream whose work fills it; none: that is done.
  std::optional<void*> made_on() const { return made_on_; }

private:
  friend class OutputPool;
  struct Idle;
  std::shared_ptr<device::Device> device_;
  std::unique_ptr<device::Memory> memory_;
  std::weak_ptr<Idle> pool_;
  std::vector<void*> users_; ///< handles of streams
  std::optional<void*> made_on_;
  std::unique_ptr<device::Event> ready_; ///< reached when it is filled
};

/// Memory for outputs on a device. Blocks that callers let go of are used again; where other streams may
/// still be at work on one, the next user's stream waits for all that the device had been asked for.
/// Thread-safe.
class OutputPool {
public:
  explicit OutputPool(std::shared_ptr<device::Device> device);
  /// For work of this stream.
  std::shared_ptr<OutputBlock> get(size_t bytes, device::Stream& stream);
  void clear();

private:
  std::shared_ptr<device::Device> device_;
  std::shared_ptr<OutputBlock::Idle> idle_;
};

} // namespace tbx::runtime
