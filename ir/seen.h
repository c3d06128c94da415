// What a walk over nodes has met.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tbx::ir {

/// Most walks are short: their set takes no memory of the heap.
class Seen {
public:
  Seen() = default;
  Seen(const Seen&) = delete;
  Seen& operator=(const Seen&) = delete;

  /// False: it was there before.
  bool insert(const void* node) {
    if (2 * size_ > mask_) grow();
    const void** slot = slot_of(node);
    if (*slot) return false;
    *slot = node;
    ++size_;
    return true;
  }

private:
  /// Where it is, or the free place for it.
  const void** slot_of(const void* node) {
    size_t at = (reinterpret_cast<uintptr_t>(node) * UINT64_C(0x9e3779b97f4a7c15) >> 32) & mask_;
    while (slots_[at] && slots_[at] != node) at = (at + 1) & mask_;
    return slots_ + at;
  }

  void grow() {
    std::vector<const void*> more(4 * (mask_ + 1), nullptr);
    const void** const old = slots_;
    const size_t end = mask_ + 1;
    slots_ = more.data();
    mask_ = more.size() - 1;
    for (size_t i = 0; i < end; ++i)
      if (old[i]) *slot_of(old[i]) = old[i];
    more_ = std::move(more);
  }

  std::array<const void*, 64> first_{};
  std::vector<const void*> more_;
  const void** slots_ = first_.data();
  size_t mask_ = first_.size() - 1, size_ = 0;
};

} // namespace tbx::ir
