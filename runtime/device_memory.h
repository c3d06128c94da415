// Memory of one run on a device: pieces of the device's memory, and of page-locked memory for copies.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
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

} // namespace tbx::runtime
