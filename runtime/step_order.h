// Step order: which steps have to wait for which, by the memory that they read and write. Places in an arena
// count as memory: who is given one waits for whoever had it before.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tbx::runtime {

struct Access {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr; ///< behind the last byte
  bool writes = false;
};

/// By step: the earlier ones that it has to wait for, last first, but for those that others of them wait for.
std::vector<std::vector<size_t>> order_of(std::span<const std::vector<Access>> steps);

} // namespace tbx::runtime
