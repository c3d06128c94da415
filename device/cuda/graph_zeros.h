// Memory that is zero when a graph starts: for kernels of libraries that count in a few bytes, which the
// library clears before each. In a graph a kernel waits about five microseconds for a fill, and half of one
// for another kernel, so these fills become one, ahead of all other work (docs/gpu_performance.md).
#pragma once

#include <cstddef>
#include <memory>

#include "device/cuda/stream.h"

namespace tbx::device::cuda {

/// Takes the fills with zeros that lie in [memory, memory + bytes) out of a graph that was recorded: what
/// waited for one waits for what that waited for. Whether there were any.
bool take_out_fills(GraphHandle graph, const void* memory, size_t bytes);

/// Memory of one graph, in pieces that are used once in each of its starts.
class GraphZeros {
public:
  explicit GraphZeros(std::shared_ptr<const ContextOwner> context);
  ~GraphZeros();
  GraphZeros(const GraphZeros&) = delete;
  GraphZeros& operator=(const GraphZeros&) = delete;
  /// A piece that begins at a multiple of 256; null where that many bytes are not left.
  void* take(size_t bytes);
  bool begun() const { return used_ > 0; } ///< somebody has a piece
  /// Fills with zeros of pieces come first in the graph, as one. Whether there were any.
  bool fill_first(GraphHandle graph) const;

private:
  std::shared_ptr<const ContextOwner> context_;
  Pointer memory_ = 0;
  size_t used_ = 0;
};

/// A piece of the memory of the graph that the stream records; null where it records none, or has no room.
/// What it holds when its user begins is zero where the user fills it with zeros first, and not defined
/// elsewhere.
void* zeros_of_graph(const Stream& stream, size_t bytes);

inline constexpr size_t kMostZeros = size_t{16} << 10; ///< bytes that are worth a piece

} // namespace tbx::device::cuda
