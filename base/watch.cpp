#include "base/watch.h"

#include <cstddef>

extern "C" { // NOLINTBEGIN(readability-identifier-naming): the sanitizer's names
void __asan_poison_memory_region(const volatile void* memory, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(const volatile void* memory, size_t bytes) __attribute__((weak));
} // NOLINTEND(readability-identifier-naming)

namespace tbx {

bool is_watched() { return __asan_poison_memory_region && __asan_unpoison_memory_region; }

void forbid(const void* memory, int64_t bytes) {
  if (is_watched() && bytes > 0) __asan_poison_memory_region(memory, static_cast<size_t>(bytes));
}

void allow(const void* memory, int64_t bytes) {
  if (is_watched() && bytes > 0) __asan_unpoison_memory_region(memory, static_cast<size_t>(bytes));
}

} // namespace tbx
