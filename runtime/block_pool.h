// BlockPool: memory of outputs, used again once its last owner let go of it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tbx::runtime {

/// Fresh memory of the operating system costs a page fault per 4 KiB, often more than the kernel that fills
/// it. Blocks return to the pool from any thread; those that come back after the pool is gone are freed.
class BlockPool {
public:
  BlockPool();
  ~BlockPool();

  /// At least `bytes`, 64-byte aligned, contents undefined. Small blocks come straight from the heap.
  std::shared_ptr<void> get(int64_t bytes);
  /// Frees the idle blocks.
  void clear();

private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

} // namespace tbx::runtime
