// A block of 64-byte aligned memory that grows on demand.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/error.h"

namespace tbx::runtime {

inline std::shared_ptr<void> allocate_aligned(int64_t bytes) {
  size_t padded = (static_cast<size_t>(bytes) + 63) / 64 * 64 + 64;
  void* p = std::aligned_alloc(64, padded);
  if (!p) throw_model_error("cannot allocate {} bytes", bytes);
  return {p, [](void* q) { std::free(q); }};
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
