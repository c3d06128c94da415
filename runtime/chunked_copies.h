// Copies between the host and a device in pieces through page-locked memory, by several threads: while one
// piece is on its way, others are moved into or out of that memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "device/device.h"

namespace tbx::runtime {

class ChunkedCopies {
public:
  explicit ChunkedCopies(device::Device& device) : device_(device) {}

  /// Returns when all was read, and the stream was asked for the copies.
  void upload(device::Stream& stream, void* to, const void* from_host, size_t bytes);
  /// Returns when all has come.
  void download(device::Stream& stream, void* to_host, const void* from, size_t bytes);

private:
  struct Piece {
    std::unique_ptr<device::Memory> memory;
    std::unique_ptr<device::Event> passed; ///< the copy that used it last
  };
  /// `copy(piece, offset, bytes)` of every part, by threads that have two pieces each.
  template <class Copy> void each(size_t bytes, Copy copy);

  device::Device& device_;
  std::vector<Piece> pieces_;
};

} // namespace tbx::runtime
