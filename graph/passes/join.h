// What the passes that join products have in common.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "graph/passes/match.h"

namespace tbx::graph {

/// Matrices of as many rows, their columns behind each other: [rows, c1], [rows, c2] -> [rows, c1 + c2].
/// Their pages are given back: nobody reads them again.
Tensor side_by_side(std::span<const Tensor* const> matrices);
/// Tensors that lie behind each other along their first dimension, likewise.
Tensor end_to_end(std::span<const Tensor* const> parts);

/// Split of `result` along an axis into `parts` of these lengths, as a node in the place of `of`.
Node split_of(Editor& editor, const Node& of, ValueId result, std::vector<ValueId> parts,
              std::span<const int64_t> lengths, int64_t axis);

/// Removes the nodes `gone`, and puts nodes where the first of those that they replace stood, whose number is
/// the key in `made`: nobody read a result before that.
void replace_nodes(Graph& graph, std::map<int, std::vector<Node>> made, std::span<const int> gone);

} // namespace tbx::graph
