// What a walk over nodes has met.
#pragma once

#include <array>
#include <cstddef>
#include <memory_resource>
#include <unordered_set>

namespace tbx::ir {

/// Most walks are short: their set takes no memory of the heap.
class Seen {
public:
  /// False: it was there before.
  bool insert(const void* node) { return nodes_.insert(node).second; }

private:
  std::array<std::byte, 2048> first_;
  std::pmr::monotonic_buffer_resource memory_{first_.data(), first_.size()};
  std::pmr::unordered_set<const void*> nodes_{&memory_};
};

} // namespace tbx::ir
