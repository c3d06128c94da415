// Memory that is zero when a graph starts: for kernels of libraries that count in a few bytes, which the
// library clears before each. In a graph a kernel waits about five microseconds for a fill, and half of one
// for another kernel, so these fills become one, ahead of all other work (docs/gpu_performance.md).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/stream.h"

namespace tbx::device::cuda {

/// Memory that one call of a library has for itself in a graph.
struct ZeroedPiece {
  Pointer memory = 0;
  size_t bytes = 0;
  std::vector<GraphNode> after; ///< what the call waits for
};

/// Takes the fills of pieces with zeros that come first in their calls out of a graph that was recorded: what
/// waited for one waits for what that waited for. Whether there were any.
bool take_out_fills(GraphHandle graph, std::span<const ZeroedPiece> pieces);

/// Memory of one graph, in pieces that are used once in each of its starts.
class GraphZeros {
public:
  explicit GraphZeros(std::shared_ptr<const ContextOwner> context);
  ~GraphZeros();
  GraphZeros(const GraphZeros&) = delete;
  GraphZeros& operator=(const GraphZeros&) = delete;
  /// A piece that begins at a multiple of 256; null where that many bytes are not left. `after`: what the
  /// nodes of its user wait for.
  void* take(size_t bytes, std::vector<GraphNode> after);
  bool begun() const { return !pieces_.empty(); }
  /// Fills with zeros of pieces come first in the graph, as one.
  void fill_first(GraphHandle graph) const;

private:
  std::shared_ptr<const ContextOwner> context_;
  Pointer memory_ = 0;
  size_t used_ = 0;
  std::vector<ZeroedPiece> pieces_;
};

/// A piece of the memory of the graph that the stream records, for a call that comes next; null where it
/// records none, or has no room. What it holds when the call begins is zero where the call fills it with
/// zeros first, and not defined elsewhere.
void* zeros_of_graph(const Stream& stream, size_t bytes);

inline constexpr size_t kMostZeros = size_t{16} << 10; ///< bytes that are worth a piece

} // namespace tbx::device::cuda
