#include "runtime/chunked_copies.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tbx::runtime {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr int kMostThreads = 8; ///< more than fill the bus

} // namespace

template <class Copy> void ChunkedCopies::each(size_t bytes, Copy copy) {
  const size_t count = (bytes + kPiece - 1) / kPiece;
  const auto threads = static_cast<int>(std::min<size_t>(
      count, static_cast<size_t>(std::clamp(tbb::this_task_arena::max_concurrency(), 1, kMostThreads))));
  while (pieces_.size() < static_cast<size_t>(threads) * 2)
    pieces_.push_back({device_.allocate_staging(kPiece), device_.make_event()});
  std::atomic<size_t> next{0};
  tbb::parallel_for(
      0, threads,
      [&](int thread) {
        Piece* mine = &pieces_[static_cast<size_t>(thread) * 2];
        for (size_t turn = 0;; ++turn) {
          const size_t part = next++;
          if (part >= count) return copy(mine[turn % 2], 0, 0);
          copy(mine[turn % 2], part * kPiece, std::min(kPiece, bytes - part * kPiece));
        }
      },
      tbb::static_partitioner());
}

void ChunkedCopies::upload(device::Stream& stream, void* to, const void* from_host, size_t bytes) {
  each(bytes, [&](Piece& piece, size_t offset, size_t count) {
    if (count == 0) return;
    device_.wait(*piece.passed);
    std::memcpy(piece.memory->data(), static_cast<const std::byte*>(from_host) + offset, count);
    stream.upload(static_cast<std::byte*>(to) + offset, piece.memory->data(), count);
    stream.record(*piece.passed);
  });
}

void ChunkedCopies::download(device::Stream& stream, void* to_host, const void* from, size_t bytes) {
  struct Pending {
    size_t offset = 0, bytes = 0;
  };
  std::vector<Pending> pending(pieces_.size() + 2 * static_cast<size_t>(kMostThreads)); ///< by piece
  auto take = [&](Piece& piece) {
    Pending& p = pending[static_cast<size_t>(&piece - pieces_.data())];
    if (p.bytes == 0) return;
    device_.wait(*piece.passed);
    std::memcpy(static_cast<std::byte*>(to_host) + p.offset, piece.memory->data(), p.bytes);
    p.bytes = 0;
  };
  each(bytes, [&](Piece& piece, size_t offset, size_t count) {
    take(piece);
    if (count == 0) return;
    device_.wait(*piece.passed); // an upload may still read it
    stream.download(piece.memory->data(), static_cast<const std::byte*>(from) + offset, count);
    stream.record(*piece.passed);
    pending[static_cast<size_t>(&piece - pieces_.data())] = {offset, count};
  });
  for (Piece& piece : pieces_) take(piece);
}

} // namespace tbx::runtime
