#include "base/spare_memory.h"

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace tbx {
namespace {

/// Descriptors, a kernel's code and an arena of several threads take less together.
constexpr size_t kSpare = 16 << 20;

} // namespace

void require_spare_memory() {
  void* p = ::mmap(nullptr, kSpare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  ::munmap(p, kSpare);
}

} // namespace tbx
