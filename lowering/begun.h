// The nodes whose lowering has begun: where an error arose, and what the outermost graph has to be asked for.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "ir/expr.h"
#include "lowering/ask.h"
#include "lowering/demand.h"

namespace tbx::lowering {

/// A stack. What an exception leaves stays on it, for lower() to read.
class Begun {
public:
  /// How many there were before.
  size_t push(const Graph& graph, const Node& node, bool has_dynamic_sizes, std::vector<DType> types) {
    nodes_.push_back({graph, node, nullptr, has_dynamic_sizes, std::move(types)});
    return nodes_.size() - 1;
  }
  /// The body of the last node that is lowered next.
  void set_body(std::shared_ptr<const Graph> body) { nodes_.back().body = std::move(body); }
  /// The one behind `count` others has ended well.
  void end(size_t count) {
    while (nodes_.size() > count) nodes_.pop_back();
  }

  /// What was asked for, in terms of the outermost graph.
  Demand demand(const Asked& asked) const;
  /// Types are checked against ONNX's schemas while importing. Operators outside of ONNX have none: types
  /// that do not fit show up in their lowering. Anywhere else they are a defect.
  Error refusal_of(const ir::TypeError& e) const;
  /// Adds the nodes.
  void say_where(Error& e) const;
  /// What is refused there may well work for the sizes of a run.
  bool is_refused_for_sizes() const;

private:
  struct One {
    const Graph& graph;
    const Node& node;
    std::shared_ptr<const Graph> body;
    bool has_dynamic_sizes;
    std::vector<DType> types; ///< of the inputs; undefined: no tensor
  };
  std::vector<One> nodes_; ///< the outermost first
};

} // namespace tbx::lowering
