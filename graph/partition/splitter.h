// Splitter: which nodes of a graph run on values of a run, and which parts of it hold numeric tensors only.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "graph/graph.h"
#include "lowering/demand.h"

namespace tbx::graph {

/// Nodes that become one program.
struct Part {
  std::vector<int> nodes;
  std::vector<ValueId> inputs, outputs;
  auto operator<=>(const Part&) const = default; // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0 here
};

/// A part as it was lowered: a graph of its own, perhaps simplified. `from[i]`: the value of the whole graph
/// that its value i is.
struct LoweredPart {
  const Graph& graph;
  const std::vector<ValueId>& from;
};

class Splitter {
public:
  /// The split that the types of the values ask for. Rewrites `g`: bodies of functions in the place of nodes,
  /// numbers for strings. UnsupportedError where an operator does not take values of these types.
  explicit Splitter(Graph& g);

  /// By level: first the part, then the nodes on values. A part without outputs is empty.
  const std::vector<Part>& parts() const { return parts_; }
  const std::vector<std::vector<int>>& value_nodes() const { return value_nodes_; }
  /// Changes with each rewrite of the graph: numbers of nodes mean something else then.
  int version() const { return version_; }

  /// Splits anew, so that the demand does not come again. False where nothing can.
  bool meet(const LoweredPart& part, const lowering::Demand& demand);
  /// The part will be lowered for the inputs of a run: what is control flow in it must not depend on what is
  /// found out then, and runs on values. Whether that splits anew.
  bool runs_later(const Part& part);

private:
  bool mark(int node);
  void mark_by_type();
  bool try_mark_by_type();
  std::string types_of(const Node& n) const;
  void split();
  void set_borders();
  void remember(int node);
  bool cut(const LoweredPart& part, int node, const std::vector<ValueId>& values);
  int original(const LoweredPart& part, int node) const;

  Graph& g_;
  std::vector<Part> parts_;
  std::vector<std::vector<int>> value_nodes_;
  int version_ = 0;
  std::vector<char> on_values_;
  std::map<ValueId, std::set<ValueId>> needed_; ///< first output of a node: what it must know
  std::set<ValueId> forced_;                    ///< first outputs of nodes that demands put on values
};

} // namespace tbx::graph
