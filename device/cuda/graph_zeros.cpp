#include "device/cuda/graph_zeros.h"

#include <algorithm>
#include <vector>

namespace tbx::device::cuda {

namespace {

constexpr size_t kBytes = size_t{256} << 10; ///< of a graph: 1,024 of the usual pieces
constexpr size_t kPiece = 256;
constexpr size_t kEdgeData = 8; ///< bytes of a CUgraphEdgeData

std::vector<GraphNode> nodes_of(GraphHandle graph) {
  size_t count = 0;
  check(driver().cuGraphGetNodes(graph, nullptr, &count), "cuGraphGetNodes");
  std::vector<GraphNode> nodes(count);
  check(driver().cuGraphGetNodes(graph, nodes.data(), &count), "cuGraphGetNodes");
  return nodes;
}

/// By `of`, one of the driver's questions for the neighbours of a node.
std::vector<GraphNode> neighbours(Result (*of)(GraphNode, GraphNode*, void*, size_t*), GraphNode node) {
  size_t count = 0;
  check(of(node, nullptr, nullptr, &count), "neighbours of a node");
  std::vector<GraphNode> nodes(count);
  std::vector<char> edges(count * kEdgeData); // else edges that are not of the usual kind are an error
  if (count > 0) check(of(node, nodes.data(), edges.data(), &count), "neighbours of a node");
  return nodes;
}

std::vector<GraphNode> before(GraphNode node) {
  return neighbours(driver().cuGraphNodeGetDependencies_v2, node);
}
std::vector<GraphNode> behind(GraphNode node) {
  return neighbours(driver().cuGraphNodeGetDependentNodes_v2, node);
}

void let_wait(GraphHandle graph, GraphNode node, GraphNode until) {
  check(driver().cuGraphAddDependencies_v2(graph, &until, &node, nullptr, 1), "cuGraphAddDependencies");
}

struct Fill {
  GraphNode node;
  Pointer begin, end;
};

/// All fills with zeros, in the order in which they were recorded.
std::vector<Fill> fills_of(GraphHandle graph) {
  std::vector<Fill> fills;
  for (GraphNode node : nodes_of(graph)) {
    int type = -1;
    check(driver().cuGraphNodeGetType(node, &type), "cuGraphNodeGetType");
    if (type != kFillNode) continue;
    FillNode fill;
    check(driver().cuGraphMemsetNodeGetParams(node, &fill), "cuGraphMemsetNodeGetParams");
    if (fill.value == 0 && fill.height <= 1)
      fills.push_back({node, fill.to, fill.to + fill.width * fill.element_bytes});
  }
  return fills;
}

} // namespace

bool take_out_fills(GraphHandle graph, std::span<const ZeroedPiece> pieces) {
  bool any = false;
  for (const Fill& fill : fills_of(graph)) {
    const auto piece = std::find_if(pieces.begin(), pieces.end(), [&](const ZeroedPiece& p) {
      return fill.begin >= p.memory && fill.end <= p.memory + p.bytes;
    });
    if (piece == pieces.end()) continue;
    const std::vector<GraphNode> earlier = before(fill.node), later = behind(fill.node);
    // Else something of the call may have written there.
    if (!std::is_permutation(earlier.begin(), earlier.end(), piece->after.begin(), piece->after.end()))
      continue;
    check(driver().cuGraphDestroyNode(fill.node), "cuGraphDestroyNode");
    for (GraphNode l : later) {
      const std::vector<GraphNode> known = before(l);
      for (GraphNode e : earlier)
        if (std::find(known.begin(), known.end(), e) == known.end()) let_wait(graph, l, e);
    }
    any = true;
  }
  return any;
}

GraphZeros::GraphZeros(std::shared_ptr<const ContextOwner> context) : context_(std::move(context)) {
  const Current current(*context_);
  check(driver().cuMemAlloc_v2(&memory_, kBytes), "memory that a graph clears");
}

GraphZeros::~GraphZeros() {
  const Current current(*context_);
  driver().cuMemFree_v2(memory_);
}

void* GraphZeros::take(size_t bytes, std::vector<GraphNode> after) {
  if (bytes > kMostZeros || kBytes - used_ < bytes) return nullptr;
  pieces_.push_back({memory_ + used_, bytes, std::move(after)});
  used_ = std::min(kBytes, used_ + (bytes + kPiece - 1) / kPiece * kPiece);
  return reinterpret_cast<void*>(pieces_.back().memory);
}

void GraphZeros::fill_first(GraphHandle graph) const {
  if (!take_out_fills(graph, pieces_)) return;
  std::vector<GraphNode> first = nodes_of(graph);
  std::erase_if(first, [](GraphNode node) { return !before(node).empty(); });
  FillNode fill;
  fill.to = memory_;
  fill.width = used_;
  GraphNode node = nullptr;
  check(driver().cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, context_->context()),
        "cuGraphAddMemsetNode");
  for (GraphNode f : first) let_wait(graph, f, node);
}

} // namespace tbx::device::cuda
