// A block of 64-byte aligned memory that grows on demand; memory that two have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/memory.h"

namespace tbx::runtime {

/// Whether some bytes are in both.
inline bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  const auto x = reinterpret_cast<uintptr_t>(a.data()), y = reinterpret_cast<uintptr_t>(b.data());
  return !a.empty() && !b.empty() && x < y + b.size() && y < x + a.size();
}

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
