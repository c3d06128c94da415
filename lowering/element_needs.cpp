#include "lowering/element_needs.h"

#include <algorithm>
#include <optional>

namespace tbx::lowering {

void Bound::lower_to(int64_t n) { number = std::min(number, n); }

void Bound::lower_to(const Bound& other) {
  lower_to(other.number);
  symbols.insert(other.symbols.begin(), other.symbols.end());
}

namespace {

Bound number(int64_t n) { return {n, {}}; }

const std::vector<ir::SymInt>* shape_of(const Graph& g, ValueId v) {
  return v >= 0 && g.at(v).type.shape ? &*g.at(v).type.shape : nullptr;
}

int64_t attribute(const Node& n, const char* name, int64_t otherwise) {
  auto it = n.attributes.find(name);
  const auto* v = it == n.attributes.end() ? nullptr : std::get_if<int64_t>(&it->second);
  return v ? *v : otherwise;
}

/// Dimension `axis` (negative from the end) of a value. One whose size is an expression is at least its
/// bound.
Bound dimension(const Graph& g, ValueId v, int64_t axis) {
  const auto* shape = shape_of(g, v);
  if (shape && axis < 0) axis += static_cast<int64_t>(shape->size());
  if (!shape || axis < 0 || axis >= static_cast<int64_t>(shape->size())) return number(1);
  ir::SymInt d = (*shape)[static_cast<size_t>(axis)];
  if (d.is_constant()) return number(d.constant());
  if (d.node()->kind == ir::SymKind::symbol && !d.node()->unbacked) return {INT64_MAX, {d.node()->name}};
  return number(std::max<int64_t>(1, ir::bounds_of(d).lo));
}

/// Positions along dimensions first, ..., first + count - 1.
Bound dimensions(const Graph& g, ValueId v, int64_t first, int64_t count) {
  Bound all;
  for (int64_t k = 0; k < count; ++k) all.lower_to(dimension(g, v, first + k));
  return all;
}

Need index_along(const Graph& g, ValueId v, int64_t axis) { return {0, dimension(g, v, axis), false}; }

/// At least 1 and, where that is known, at most a dimension.
Need count_of(const Graph& g, ValueId v, int64_t axis) {
  Bound b = dimension(g, v, axis);
  return {1, number(b.symbols.empty() && b.number < INT64_MAX ? b.number + 1 : 2), false};
}

Need axis_of(const Graph& g, ValueId v) {
  const auto* shape = shape_of(g, v);
  return {0, number(shape ? std::max<int64_t>(1, static_cast<int64_t>(shape->size())) : 1), true};
}

/// The indices of GatherND and ScatterND are tuples along their last dimension.
Need tuple_of(const Graph& g, const Node& n, ValueId data, ValueId indices) {
  const auto* shape = shape_of(g, indices);
  auto k = shape && !shape->empty() ? shape->back().as_constant() : std::nullopt;
  return {0, k ? dimensions(g, data, attribute(n, "batch_dims", 0), std::min<int64_t>(*k, 64)) : number(1),
          false};
}

} // namespace

NeedOf index_into(size_t data, int64_t axis) {
  return [=](const Graph& g, const Node& n) { return index_along(g, n.input(data), axis); };
}

NeedOf index_into(size_t data, const char* name, int64_t otherwise) {
  return [=](const Graph& g, const Node& n) {
    return index_along(g, n.input(data), attribute(n, name, otherwise));
  };
}

NeedOf index_tuple() {
  return [](const Graph& g, const Node& n) { return tuple_of(g, n, n.input(0), n.input(1)); };
}

NeedOf count_along(size_t data, int64_t axis) {
  return [=](const Graph& g, const Node& n) { return count_of(g, n.input(data), axis); };
}

NeedOf count_along(size_t data, const char* name, int64_t otherwise) {
  return [=](const Graph& g, const Node& n) {
    return count_of(g, n.input(data), attribute(n, name, otherwise));
  };
}

NeedOf axis_of_input() {
  return [](const Graph& g, const Node& n) { return axis_of(g, n.input(0)); };
}

NeedOf axis_of_output() {
  return [](const Graph& g, const Node& n) { return axis_of(g, n.outputs.empty() ? -1 : n.outputs[0]); };
}

NeedOf between(int64_t least, int64_t below) {
  return [=](const Graph&, const Node&) { return Need{least, number(below), false}; };
}

NeedOf some() { return between(1, 8); }

NeedOf position_in(size_t positions, size_t table) {
  return [=](const Graph& g, const Node& n) {
    const auto* shape = shape_of(g, n.input(positions));
    return shape && shape->size() == 2 ? index_along(g, n.input(table), 0) : Need{0, number(1), false};
  };
}

NeedOf at_least_queries() {
  return [](const Graph& g, const Node& n) {
    const Bound queries = dimension(g, n.input(0), 1);
    const int64_t least = queries.symbols.empty() ? std::clamp<int64_t>(queries.number, 1, 1 << 30) : 1;
    return Need{least, number(least + 1), false};
  };
}

} // namespace tbx::lowering
