#include "runtime/device_memory.h"

#include <algorithm>
#include <bit>
#include <new>

#include "runtime/device_align.h"

namespace tbx::runtime {
namespace {
constexpr size_t kLeast = 64 << 10;
constexpr size_t kMostIdle = size_t{1} << 30; ///< bytes kept for later runs
} // namespace

std::mutex& recording() {
  static std::mutex one;
  return one;
}

std::byte* Staging::get(size_t bytes) {
  bytes = device_aligned(bytes);
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
  bytes = std::bit_ceil(std::max(bytes, kDeviceAlign));
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

/// Blocks that nobody holds.
struct OutputBlock::Idle {
  struct Free {
    std::unique_ptr<device::Memory> memory;
    std::vector<void*> users; ///< streams whose work may still use it
  };
  std::mutex mutex;
  std::multimap<size_t, Free> blocks; ///< by size
  size_t bytes = 0;
};

std::shared_ptr<OutputBlock> OutputBlock::make(std::shared_ptr<device::Device> device, size_t bytes) {
  auto block = std::make_shared<OutputBlock>();
  block->memory_ = device->allocate(bytes);
  block->device_ = std::move(device);
  return block;
}

// No word to the device here: whoever lets go of a tensor may do so at any time, and its streams may be gone.
OutputBlock::~OutputBlock() {
  const std::shared_ptr<Idle> pool = pool_.lock();
  if (!pool || !memory_) return; // giving memory back to the device waits for its work
  const size_t bytes = memory_->bytes();
  std::scoped_lock lock(pool->mutex);
  if (pool->bytes + bytes > kMostIdle) return;
  try {
    pool->blocks.emplace(bytes, Idle::Free{std::move(memory_), std::move(users_)});
    pool->bytes += bytes;
  } catch (const std::bad_alloc&) { // no memory for the list: the block goes back to the device
  }
}

void OutputBlock::used_on(void* stream) {
  if (std::find(users_.begin(), users_.end(), stream) == users_.end()) users_.push_back(stream);
}

void OutputBlock::made_on(void* stream) {
  used_on(stream);
  made_on_ = stream;
  ready_ = device_->make_event();
  device_->adopt_stream(stream)->record(*ready_);
}

void OutputBlock::wait_on(device::Stream& stream) const {
  if (ready_ && stream.handle() != *made_on_) stream.wait(*ready_);
}

OutputPool::OutputPool(std::shared_ptr<device::Device> device)
    : device_(std::move(device)), idle_(std::make_shared<OutputBlock::Idle>()) {}

std::shared_ptr<OutputBlock> OutputPool::get(size_t bytes, device::Stream& stream) {
  bytes = std::bit_ceil(std::max(bytes, kDeviceAlign));
  OutputBlock::Idle::Free free;
  auto is_done = [&](const OutputBlock::Idle::Free& f) { // work of the same stream comes in order
    return std::all_of(f.users.begin(), f.users.end(), [&](void* u) { return u == stream.handle(); });
  };
  {
    std::scoped_lock lock(idle_->mutex);
    const auto [first, last] = idle_->blocks.equal_range(bytes);
    auto it = std::find_if(first, last, [&](const auto& f) { return is_done(f.second); });
    if (it == last) it = first;
    if (it != last) {
      idle_->bytes -= bytes;
      free = std::move(it->second);
      idle_->blocks.erase(it);
    }
  }
  if (!free.memory) {
    free.memory = device_->allocate(bytes);
  } else if (!is_done(free)) {
    const auto passed = device_->make_event();
    std::scoped_lock lock(recording());
    device_->record_all(*passed);
    stream.wait(*passed);
  }
  auto block = std::make_shared<OutputBlock>();
  block->device_ = device_;
  block->memory_ = std::move(free.memory);
  block->pool_ = idle_;
  return block;
}

void OutputPool::clear() {
  std::multimap<size_t, OutputBlock::Idle::Free> blocks;
  std::scoped_lock lock(idle_->mutex);
  blocks.swap(idle_->blocks);
  idle_->bytes = 0;
}

} // namespace tbx::runtime
