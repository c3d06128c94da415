#include "device/fake/guarded.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace tbx::device::fake {

namespace {
constexpr size_t kPage = 4096, kAlign = 256;
constexpr unsigned char kGuardByte = 0xA5;
} // namespace

Arena::Access::Access(Arena& arena) : arena_(arena) {
  arena_.mutex_.lock();
  if (arena_.depth_++ == 0)
    for (const Guarded* b : arena_.blocks_) b->set_access(true);
}

Arena::Access::~Access() {
  if (--arena_.depth_ == 0)
    for (const Guarded* b : arena_.blocks_) b->set_access(false);
  arena_.mutex_.unlock();
}

std::string Arena::defect_of(const void* data, size_t bytes) {
  const auto at = reinterpret_cast<uintptr_t>(data);
  std::scoped_lock lock(mutex_);
  for (const Guarded* b : blocks_) {
    const auto begin = reinterpret_cast<uintptr_t>(b->data()), end = begin + b->bytes();
    if (at < begin || at >= end) continue;
    if (bytes <= end - at) return {};
    return fmt::format("{} bytes are left in its memory, {} are needed", end - at, bytes);
  }
  return "its address is none of a GPU's memory";
}

Guarded::Guarded(std::shared_ptr<Arena> arena, size_t bytes)
    : Memory(nullptr, bytes), arena_(std::move(arena)) {
  const size_t used = (bytes + kAlign - 1) / kAlign * kAlign, inner = (used + kPage - 1) / kPage * kPage;
  map_bytes_ = inner + 2 * kPage;
  void* map = bytes < SIZE_MAX / 2
                  ? mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                  : MAP_FAILED;
  if (map == MAP_FAILED) throw_backend_error("there is no room for {} bytes on the device", bytes);
  map_ = static_cast<char*>(map);
  mprotect(map_, kPage, PROT_NONE);
  mprotect(map_ + kPage + inner, kPage, PROT_NONE);
  // The end lies as close to the guard page as alignment allows; what was never written is no number anybody
  // expects.
  data_ = map_ + kPage + inner - used;
  std::memset(map_ + kPage, kGuardByte, inner);
  std::scoped_lock lock(arena_->mutex_);
  arena_->blocks_.insert(this);
  set_access(arena_->depth_ > 0);
}

Guarded::~Guarded() {
  {
    std::scoped_lock lock(arena_->mutex_);
    arena_->blocks_.erase(this);
  }
  set_access(true);
  const auto* end = map_ + map_bytes_ - kPage;
  for (const auto* p = static_cast<const char*>(data_) + bytes_; p < end; ++p)
    if (static_cast<unsigned char>(*p) != kGuardByte) {
      std::fprintf(stderr,
                   "fake device: a kernel or copy wrote %td bytes after the end of a block of %zu bytes\n",
                   p - static_cast<const char*>(data_) - static_cast<ptrdiff_t>(bytes_), bytes_);
      std::abort();
    }
  munmap(map_, map_bytes_);
}

void Guarded::set_access(bool open) const {
  mprotect(map_ + kPage, map_bytes_ - 2 * kPage, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

} // namespace tbx::device::fake
