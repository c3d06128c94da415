// What the passes that join products have in common.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "graph/passes/match.h"

namespace tbx::graph {

/// Who reads the values of a graph, as it is when this is made. The editor must outlive it.
class Readers {
public:
  explicit Readers(const Editor& editor);
  /// The only reader of a value, by number; -1: there are others, or none, or it is an output.
  int only(ValueId id) const;
  /// The nodes of the graph alone read the value, and there are some: `is` is true for all of them.
  template <class F> bool all(ValueId id, F&& is) const {
    const std::vector<int>& of = readers_[id];
    return !of.empty() && editor_.uses(id) == static_cast<int>(of.size()) &&
           std::all_of(of.begin(), of.end(), [&](int i) { return is(editor_.graph.nodes[i]); });
  }

  /// All that is done with it is to see it in another shape: no library computes anything on it.
  bool split_into_heads(ValueId id) const;

private:
  const Editor& editor_;
  std::vector<std::vector<int>> readers_; ///< nodes, by value
};

/// Matrices of as many rows, their columns behind each other: [rows, c1], [rows, c2] -> [rows, c1 + c2].
/// Their pages are given back: nobody reads them again.
Tensor side_by_side(std::span<const Tensor* const> matrices);
/// Tensors that lie behind each other along their first dimension, likewise.
Tensor end_to_end(std::span<const Tensor* const> parts);

/// Vectors of these lengths behind each other; zeros in the place of one that is null.
Tensor joined_biases(std::span<const Tensor* const> parts, std::span<const int64_t> lengths, DType type);

/// Split of `result` along an axis into `parts` of these lengths, as a node in the place of `of`.
Node split_of(Editor& editor, const Node& of, ValueId result, std::vector<ValueId> parts,
              std::span<const int64_t> lengths, int64_t axis);

/// Removes the nodes `gone`, and puts nodes where the first of those that they replace stood, whose number is
/// the key in `made`: nobody read a result before that.
void replace_nodes(Graph& graph, std::map<int, std::vector<Node>> made, std::span<const int> gone);

} // namespace tbx::graph
