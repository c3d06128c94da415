// A block of 64-byte aligned memory that grows on demand.
#pragma once

#include <cstdint>
#include <memory>

#include "base/memory.h"

namespace tbx::runtime {

class Block {
public:
  /// At least `bytes`; contents are lost when it grows.
  void* get(int64_t bytes) {
    if (bytes > size_) {
      memory_ = allocate_aligned(bytes);
      size_ = bytes;
    }
    return memory_.get();
  }
  int64_t size() const { return size_; }

private:
  std::shared_ptr<void> memory_;
  int64_t size_ = 0;
};

} // namespace tbx::runtime
