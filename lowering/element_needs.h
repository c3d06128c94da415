// Element needs: what operators ask of the integers in their inputs (indices, axes, lengths, counts), said
// where they are registered.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "graph/graph.h"

namespace tbx::lowering {

/// A bound of the elements of a value: a number, or a number that a dimension decides.
struct Bound {
  int64_t number = INT64_MAX;
  std::set<std::string> symbols;

  void lower_to(int64_t n);
  void lower_to(const Bound& other);
};

/// What a node needs the elements of one of its inputs to be.
struct Need {
  int64_t least = 0;
  Bound below;
  bool distinct = false;
};
using NeedOf = std::function<Need(const Graph&, const Node&)>;

/// Positions along a dimension of input `data`: `axis`, or what the attribute of that name says.
NeedOf index_into(size_t data, int64_t axis);
NeedOf index_into(size_t data, const char* attribute, int64_t otherwise);
/// Tuples of positions in input 0, along the last dimension of input 1.
NeedOf index_tuple();
/// At least 1 and, where that is known, at most a dimension of input `data`.
NeedOf count_along(size_t data, int64_t axis);
NeedOf count_along(size_t data, const char* attribute, int64_t otherwise);
/// Dimensions of input 0, each once; or of output 0.
NeedOf axis_of_input();
NeedOf axis_of_output();
NeedOf between(int64_t least, int64_t below);
/// Numbers of which a few are as good as any.
NeedOf some();
/// Rows of input `table`, where input `positions` has a position per token; else the first one, which goes on
/// with every row and leaves room for all.
NeedOf position_in(size_t positions, size_t table);
/// At least the length of the queries [batch, length, ...] of input 0.
NeedOf at_least_queries();

} // namespace tbx::lowering
