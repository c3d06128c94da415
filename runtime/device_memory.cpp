#include "runtime/device_memory.h"

#include <algorithm>
#include <bit>

namespace tbx::runtime {
namespace {
constexpr size_t kAlign = 256, kLeast = 64 << 10;
constexpr size_t kMostIdle = size_t{1} << 30; ///< bytes kept for later runs
size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }
} // namespace

std::byte* Staging::get(size_t bytes) {
  bytes = aligned(bytes);
  if (blocks_.empty() || blocks_.back()->bytes() - used_ < bytes) {
    blocks_.push_back(device_.allocate_staging(std::max(bytes, kLeast)));
    used_ = 0;
  }
  std::byte* p = static_cast<std::byte*>(blocks_.back()->data()) + used_;
  used_ += bytes;
  return p;
}

void Staging::reset() {
  used_ = 0;
  if (blocks_.size() < 2) return;
  const size_t all = bytes();
  blocks_.clear();
  blocks_.push_back(device_.allocate_staging(all));
}

size_t Staging::bytes() const {
  size_t n = 0;
  for (const auto& b : blocks_) n += b->bytes();
  return n;
}

std::shared_ptr<void> DevicePool::get(size_t bytes) {
  // Few different sizes, so that what was used is of use again.
  bytes = std::bit_ceil(std::max(bytes, kAlign));
  std::shared_ptr<device::Memory> memory;
  if (auto it = idle_->find(bytes); it != idle_->end()) {
    memory = std::move(it->second);
    idle_->erase(it);
  } else {
    memory = device_.allocate(bytes);
  }
  void* data = memory->data();
  return {data, [idle = idle_, bytes, memory = std::move(memory)](void*) { idle->emplace(bytes, memory); }};
}

void DevicePool::trim() {
  size_t bytes = 0;
  for (const auto& [size, memory] : *idle_) bytes += size;
  while (bytes > kMostIdle) {
    auto largest = std::prev(idle_->end());
    bytes -= largest->first;
    idle_->erase(largest);
  }
}

} // namespace tbx::runtime
