// Pieces: recorded work whose pieces wait for some of the earlier ones instead of for all of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace tbx::device {

/// `Node`: of the graph that is recorded. What comes next waits for a set of nodes: that of the last one
/// where nothing else was said.
template <class Node> class Pieces {
public:
  using Nodes = std::vector<Node>;

  void clear() { ends_.clear(); }
  bool begun() const { return !ends_.empty(); }
  /// The nodes that the next piece waits for. `last`: what would be waited for now.
  Nodes begin(Nodes last, std::span<const size_t> after) {
    ends_.push_back(std::move(last));
    Nodes nodes;
    if (after.empty()) nodes = ends_.front();
    for (size_t piece : after) add(nodes, ends_.at(piece + 1));
    return nodes;
  }
  /// Those that the rest waits for: all ends.
  Nodes join(Nodes last) {
    ends_.push_back(std::move(last));
    Nodes nodes;
    for (const Nodes& ends : ends_) add(nodes, ends);
    clear();
    return nodes;
  }

private:
  static void add(Nodes& to, const Nodes& nodes) {
    for (const Node& n : nodes)
      if (std::find(to.begin(), to.end(), n) == to.end()) to.push_back(n);
  }
  std::vector<Nodes> ends_; ///< of what was recorded before the first piece, then of each
};

} // namespace tbx::device
