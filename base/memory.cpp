#include "base/memory.h"

#include <sys/mman.h>

#include <cstdlib>

#include "base/error.h"

namespace tbx {

std::shared_ptr<void> allocate_aligned(int64_t bytes) {
  // Streams of weights and activations miss the TLB on every 4 KiB: blocks of several huge pages ask for
  // them. Only whole ones, so that the end of a block takes no more memory than it needs.
  constexpr size_t kHugePage = 2 << 20, kAlignment = 64;
  const size_t size = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  const bool huge = size >= 2 * kHugePage;
  const size_t alignment = huge ? kHugePage : kAlignment;
  void* p = std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (!p) throw_model_error("cannot allocate {} bytes", bytes);
#if defined(MADV_HUGEPAGE)
  if (huge) (void)::madvise(p, size / kHugePage * kHugePage, MADV_HUGEPAGE); // refused: small pages do
#endif
  return {p, [](void* q) { std::free(q); }};
}

} // namespace tbx
