// The node that stands for the derivative of one operator until it is lowered.
#pragma once

#include "importer/graph.h"

namespace tbx::importer {

/// tensorbox.Derivative: inputs are those of the operator, then the gradients of its outputs (-1: none);
/// outputs are the gradients of its inputs (-1: not wanted). It keeps the attributes of the operator under
/// their names behind an apostrophe, so that derivatives of derivatives nest.
struct DerivativeNode {
  Node forward; ///< the operator; inputs and outputs only say which are there (>= 0)
  int num_inputs = 0;

  /// ModelError where `node` has another form.
  static DerivativeNode read(const Node& node);
  /// The node for operator `forward`; its outputs are for the caller to set.
  static Node make(const Node& forward, const std::vector<ValueId>& gradients);
};

} // namespace tbx::importer
