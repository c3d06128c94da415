#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/rounding.h"
#include "base/watch.h"

namespace tbx {

int64_t memory_limit() {
  static const int64_t limit = [] {
    const int64_t pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
    int64_t bytes = pages > 0 && page > 0 ? pages * page : INT64_MAX;
    for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
      int64_t of_group = 0;
      if (std::ifstream(path) >> of_group && of_group > 0) bytes = std::min(bytes, of_group);
    }
    return bytes;
  }();
  return limit;
}

namespace {

/// The system grants more than there is, and ends the process when that is used.
void check_against_limit(int64_t bytes) {
  if (bytes > memory_limit())
    throw_model_error("{} bytes are asked for, the machine has {}", bytes, memory_limit());
}

} // namespace

std::shared_ptr<void> allocate_aligned(int64_t bytes) {
  check_against_limit(bytes);
  // Streams of weights and activations miss the TLB on every 4 KiB: blocks of several huge pages ask for
  // them. Only whole ones, so that the end of a block takes no more memory than it needs.
  constexpr size_t kHugePage = 2 << 20, kAlignment = 64;
  const size_t size = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  if (constexpr size_t kSmall = 4 << 10; size <= kSmall && !is_watched()) {
    // Block and count in one piece: runs of microseconds ask for their outputs.
    auto block = std::make_shared_for_overwrite<std::byte[]>(size + kAlignment);
    const auto from = reinterpret_cast<uintptr_t>(block.get());
    std::byte* aligned = block.get() + ((kAlignment - from % kAlignment) % kAlignment);
    return {std::move(block), aligned};
  }
  const bool huge = size >= 2 * kHugePage;
  const size_t alignment = huge ? kHugePage : kAlignment;
  void* p = std::aligned_alloc(alignment, round_up(size, alignment));
  if (!p) throw_model_error("cannot allocate {} bytes", bytes);
#if defined(MADV_HUGEPAGE)
  if (huge) (void)::madvise(p, size / kHugePage * kHugePage, MADV_HUGEPAGE); // refused: small pages do
#endif
  if (!is_watched()) return {p, [](void* q) { std::free(q); }};
  auto* behind = static_cast<std::byte*>(p) + bytes;
  const int64_t unused = static_cast<int64_t>(size) - bytes;
  forbid(behind, unused);
  return {p, [behind, unused](void* q) {
            allow(behind, unused);
            std::free(q);
          }};
}

std::shared_ptr<void> allocate_pages(int64_t bytes, Pages pages) {
  check_against_limit(bytes);
  if (is_watched()) return allocate_aligned(bytes);
  constexpr size_t kHugePage = 2 << 20, kBehind = 64;
  const bool huge = pages == Pages::huge && static_cast<size_t>(bytes) >= kHugePage;
  const size_t size = static_cast<size_t>(bytes) + kBehind, mapped = size + (huge ? kHugePage : 0);
  void* p = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw_model_error("cannot allocate {} bytes", bytes);
  void* first = p;
#if defined(MADV_HUGEPAGE)
  if (huge) { // from a border of them on; refused: small pages do
    const auto at = reinterpret_cast<uintptr_t>(p);
    first = static_cast<std::byte*>(p) + (kHugePage - at % kHugePage) % kHugePage;
    (void)::madvise(first, size / kHugePage * kHugePage, MADV_HUGEPAGE);
  }
#endif
  return {std::shared_ptr<void>(p, [mapped](void* q) { ::munmap(q, mapped); }), first};
}

} // namespace tbx
