#include "runtime/block_pool.h"

#include <algorithm>

#include "base/memory.h"

namespace tbx::runtime {
namespace {

constexpr int64_t kPooled = 32 << 10;     ///< smaller blocks stay mapped in the heap anyway
constexpr size_t kMaxBlocks = 64;         ///< idle blocks kept
constexpr int64_t kMaxIdle = 256ll << 20; ///< bytes of idle blocks kept

struct Idle {
  std::shared_ptr<void> memory;
  int64_t size;
};

} // namespace

struct BlockPool::Shared {
  std::mutex mutex;
  std::vector<Idle> idle; ///< the latest returned last
  int64_t idle_bytes = 0;

  Shared() { idle.reserve(kMaxBlocks + 1); } // put() runs in destructors: it must not throw

  std::shared_ptr<void> take(int64_t bytes, int64_t& size) {
    std::lock_guard lock(mutex);
    for (size_t i = idle.size(); i-- > 0;)
      if (idle[i].size >= bytes && idle[i].size <= bytes + bytes / 4) {
        std::shared_ptr<void> memory = std::move(idle[i].memory);
        size = idle[i].size;
        idle_bytes -= size;
        idle.erase(idle.begin() + static_cast<std::ptrdiff_t>(i));
        return memory;
      }
    return nullptr;
  }

  void put(std::shared_ptr<void> memory, int64_t size) {
    std::lock_guard lock(mutex);
    idle.push_back({std::move(memory), size});
    idle_bytes += size;
    while (idle.size() > kMaxBlocks || (idle_bytes > kMaxIdle && !idle.empty())) {
      idle_bytes -= idle.front().size;
      idle.erase(idle.begin());
    }
  }
};

BlockPool::BlockPool() : shared_(std::make_shared<Shared>()) {}
BlockPool::~BlockPool() = default;

std::shared_ptr<void> BlockPool::get(int64_t bytes) {
  if (bytes < kPooled) return allocate_aligned(bytes);
  int64_t size = bytes;
  std::shared_ptr<void> memory = shared_->take(bytes, size);
  if (!memory) memory = allocate_aligned(size);
  void* data = memory.get();
  return {data, [memory = std::move(memory), size, pool = std::weak_ptr(shared_)](void*) mutable {
            if (auto shared = pool.lock()) shared->put(std::move(memory), size);
          }};
}

void BlockPool::clear() {
  std::vector<Idle> dropped;
  std::lock_guard lock(shared_->mutex);
  dropped.swap(shared_->idle);
  shared_->idle_bytes = 0;
}

} // namespace tbx::runtime
