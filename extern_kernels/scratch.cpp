#include "extern_kernels/scratch.h"

#include <mutex>
#include <new>
#include <vector>

#include "base/memory.h"

namespace tbx::extern_kernels {
namespace {

/// As many blocks as calls ever ran at once, each as large as the largest call it served.
struct Pool {
  struct Block {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  std::mutex mutex;
  std::vector<Block> idle;
};

Pool& pool() {
  static auto* p = new Pool; // calls may outlive static objects
  return *p;
}

} // namespace

Scratch::Scratch(int64_t bytes) {
  if (bytes <= 0) return;
  {
    Pool& p = pool();
    std::lock_guard lock(p.mutex);
    if (!p.idle.empty()) {
      block_ = std::move(p.idle.back().memory);
      bytes_ = p.idle.back().bytes;
      p.idle.pop_back();
    }
  }
  if (bytes_ >= bytes) return;
  block_.reset();
  block_ = allocate_aligned(bytes);
  bytes_ = bytes;
}

Scratch::~Scratch() {
  if (!block_) return;
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  try {
    p.idle.push_back({std::move(block_), bytes_});
  } catch (const std::bad_alloc&) { // no memory for the list: the block itself is given back
  }
}

} // namespace tbx::extern_kernels
