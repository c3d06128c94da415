// Reverse mode over the nodes of one graph: the gradients of seeds, carried back node by node.
#pragma once

#include <map>
#include <set>

#include "graph/differentiate/gradient_rules.h"

namespace tbx::graph {

/// Calls `fn` with every value that the node reads, those that its bodies take from around it included.
template <class Fn> void for_each_read(const Node& n, Fn fn) {
  for (ValueId v : n.inputs)
    if (v >= 0) fn(v);
  for_each_capture(n, [&](const Graph::Capture& c) { fn(c.outer); });
}
bool reads_any(const Node& n, const std::set<ValueId>& values);
/// Copies the bodies of a node, to be changed: others have them, too.
void own_bodies(Node& n);
/// Puts nodes that can be differentiated in the place of node `i`, where it is of an operator that cannot:
/// the body that ONNX defines for it, or the steps of a recurrence. False where nothing is to be done.
bool open_body(Graph& g, size_t i);
/// Gradients flow through floats alone; what has no type yet may be one.
bool may_vary(const ValueType& type);

class Reverse {
public:
  /// `forward` are nodes of `g` in order; what is made goes behind `out`.
  Reverse(Graph& g, std::vector<Node>& out, int origin, std::vector<Node> forward);
  /// Says which values gradients are wanted of; first of all.
  void vary(const std::vector<ValueId>& xs);
  bool varies(ValueId v) const { return dependent_.count(v) != 0; }
  /// Adds to the gradient of `v`.
  void give(ValueId v, ValueId g);
  void run();
  /// After run(): -1 where none arrives.
  ValueId gradient(ValueId v) const;

  GradientBuilder b;

private:
  Graph& g_;
  std::vector<Node> forward_;
  std::map<ValueId, ValueId> gradient_;
  std::set<ValueId> dependent_;
};

} // namespace tbx::graph
