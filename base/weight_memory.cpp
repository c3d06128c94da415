#include "base/weight_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

#include "base/memory.h"
#include "base/rounding.h"
#include "base/watch.h"

namespace tbx {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLeast = 16 << 10,
                  kMost = 4 << 20; ///< of a block in a shared piece; more has huge pages of its own
constexpr int64_t kLeastPiece = 1 << 20, kMostPiece = 32 << 20;
constexpr int64_t kHugePiece = 8 << 20; ///< the last huge page of a piece may stay mostly empty

/// The piece that is being filled. Nobody but its blocks keeps it.
struct Filling {
  std::mutex mutex;
  std::weak_ptr<void> piece;
  int64_t size = 0, used = 0;
  int64_t all = 0; ///< of this piece and those before it, as far as they follow each other
};

Filling& filling() {
  static Filling& f = *new Filling; // blocks may be asked for while the process ends
  return f;
}

} // namespace

std::shared_ptr<void> allocate_weights(int64_t bytes) {
  if (bytes < kLeast || bytes >= kMost || is_watched()) return allocate_aligned(bytes);
  const int64_t wanted = round_up(bytes, kAlignment);
  Filling& f = filling();
  const std::lock_guard lock(f.mutex);
  std::shared_ptr<void> piece = f.piece.lock();
  if (!piece) f.all = f.size = 0;
  if (!piece || wanted > f.size - f.used) {
    // Small models take small pieces, each as large as all before it.
    const int64_t size = std::max(wanted, std::clamp(f.all, kLeastPiece, kMostPiece));
    piece = allocate_pages(size, size >= kHugePiece ? Pages::huge : Pages::small);
    f.piece = piece;
    f.size = size;
    f.used = 0;
    f.all += size;
  }
  auto* block = static_cast<std::byte*>(piece.get()) + f.used;
  f.used += wanted;
  return {std::move(piece), block};
}

} // namespace tbx
