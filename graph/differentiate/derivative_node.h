// The node that stands for the derivative of one operator until it is lowered.
#pragma once

#include "graph/graph.h"

namespace tbx::graph {

/// tensorbox.Derivative: inputs are those of the operator, then the gradients of its outputs (-1: none);
/// outputs are the gradients of its inputs (-1: not wanted). It keeps the attributes of the operator under
/// their names behind an apostrophe, so that derivatives of derivatives nest.
struct DerivativeNode {
  Node forward; ///< the operator; inputs and outputs only say which are there (>= 0)
  int num_inputs = 0;
  /// What comes out is differentiated itself: where a shorter form would have another derivative, it takes
  /// the longer one.
  bool differentiated = false;

  /// ModelError where `node` has another form.
  static DerivativeNode read(const Node& node);
  /// The node for operator `forward`; its outputs are for the caller to set.
  static Node make(const Node& forward, const std::vector<ValueId>& gradients);
  /// Sets `differentiated` of a node that is a Derivative.
  static void set_differentiated(Node& node);
};

} // namespace tbx::graph
