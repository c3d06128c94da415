#include "graph/analysis/input_ranges.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

using lowering::Need;
using lowering::Trait;

/// The elements are `scale` times those of the graph's input, plus `shift`.
struct Linear {
  int64_t scale = 1, shift = 0;
};

const lowering::Registry& registry() { return lowering::Registry::instance(); }

/// After an Add, Sub or Mul with a constant; nullopt for all else.
std::optional<Linear> after(const Graph& g, const Node& n, size_t input, Linear e) {
  if (!n.domain.empty() || n.inputs.size() != 2) return std::nullopt;
  const ValueId other = n.input(1 - input);
  const auto& t = other >= 0 ? g.at(other).constant : nullptr;
  if (!t || t->numel() != 1 || !is_integer(t->dtype)) return std::nullopt;
  const int64_t c = element_as_int(*t, 0);
  if (n.op_type == "Sub" && (input == 1 || c == INT64_MIN)) return std::nullopt;
  const bool fits = n.op_type == "Mul"
                        ? c > 0 && !__builtin_mul_overflow(e.scale, c, &e.scale) &&
                              !__builtin_mul_overflow(e.shift, c, &e.shift)
                        : (n.op_type == "Add" || n.op_type == "Sub") &&
                              !__builtin_add_overflow(e.shift, n.op_type == "Sub" ? -c : c, &e.shift);
  return fits ? std::optional(e) : std::nullopt;
}

/// Who reads the values of a graph: its nodes, and the bodies in them.
class Readers {
public:
  explicit Readers(const Graph& graph) : of_nodes_(graph.values.size()), of_bodies_(graph.values.size()) {
    for (const Node& n : graph.nodes) {
      for (size_t i = 0; i < n.inputs.size(); ++i)
        if (n.inputs[i] >= 0) of_nodes_[n.inputs[i]].push_back({&n, i});
      for_each_body(n, [&](const Graph& body) {
        for (const Graph::Capture& c : body.captures) of_bodies_[c.outer].push_back({&body, c.inner});
      });
    }
  }

  /// Each node with the number of the input.
  const std::vector<std::pair<const Node*, size_t>>& nodes(ValueId v) const { return of_nodes_[v]; }
  /// Each body with the value there.
  const std::vector<std::pair<const Graph*, ValueId>>& bodies(ValueId v) const { return of_bodies_[v]; }

private:
  std::vector<std::vector<std::pair<const Node*, size_t>>> of_nodes_;
  std::vector<std::vector<std::pair<const Graph*, ValueId>>> of_bodies_;
};

class Follower {
public:
  /// What the elements of the graph's input `v` are needed to be.
  Need follow_input(const Graph& g, ValueId v) {
    found_ = {INT64_MIN, {}, false};
    seen_.clear();
    follow(g, v, {});
    return found_;
  }

private:
  static constexpr size_t kMaxValues = 1000;  ///< that one input reaches
  static constexpr size_t kMaxReads = 200000; ///< of all inputs together: a model must not take long to load

  void follow(const Graph& g, ValueId v, Linear e) {
    if (seen_.size() >= kMaxValues || !seen_.insert({&g, v, e.scale, e.shift}).second) return;
    const Readers& readers = readers_.try_emplace(&g, g).first->second;
    for (auto [node, input] : readers.nodes(v)) {
      if (++reads_ > kMaxReads) return;
      reach(g, *node, input, e);
    }
    for (auto [body, inner] : readers.bodies(v)) follow(*body, inner, e);
  }

  void reach(const Graph& g, const Node& n, size_t input, Linear e) {
    if (const lowering::NeedOf* need = registry().need_of(n, input)) narrow((*need)(g, n), e);
    if (n.domain.empty() && n.op_type == "Loop" && input >= 2)
      for_each_body(n, [&](Graph& body) {
        if (input < body.inputs.size()) follow(body, body.inputs[input], e);
      });
    std::optional<Linear> next = registry().has(input == 0 ? Trait::keeps_first : Trait::keeps_others, n)
                                     ? std::optional(e)
                                     : after(g, n, input, e);
    if (!next) return;
    for (ValueId out : n.outputs)
      if (out >= 0) follow(g, out, *next);
  }

  /// least <= scale * x + shift < below, for x.
  void narrow(const Need& need, Linear e) {
    auto ceil_div = [](int64_t a, int64_t b) { return a / b + (a % b > 0); };
    int64_t room = 0;
    if (!__builtin_sub_overflow(need.least, e.shift, &room))
      found_.least = std::max(found_.least, ceil_div(room, e.scale));
    if (need.below.number < INT64_MAX && !__builtin_sub_overflow(need.below.number, e.shift, &room))
      found_.below.lower_to(ceil_div(room, e.scale));
    if (e.scale == 1 && e.shift <= 0)
      found_.below.symbols.insert(need.below.symbols.begin(), need.below.symbols.end());
    else if (!need.below.symbols.empty())
      found_.below.lower_to(1);
    found_.distinct |= need.distinct;
  }

  Need found_;
  std::set<std::tuple<const Graph*, ValueId, int64_t, int64_t>> seen_;
  std::map<const Graph*, Readers> readers_;
  size_t reads_ = 0;
};

} // namespace

std::map<std::string, InputRange> ranges_of_inputs(const Graph& graph) {
  std::map<std::string, InputRange> ranges;
  Follower follower;
  for (ValueId v : graph.inputs) {
    if (v < 0 || graph.at(v).type.kind != ValueType::tensor || !is_integer(graph.at(v).type.dtype)) continue;
    const Need found = follower.follow_input(graph, v);
    if (found.least == INT64_MIN) continue; // nothing was reached
    InputRange& r = ranges[graph.at(v).name];
    r.least = std::max<int64_t>(0, found.least);
    r.distinct = found.distinct;
    if (found.below.number < INT64_MAX) r.below.push_back(std::to_string(found.below.number));
    r.below.insert(r.below.end(), found.below.symbols.begin(), found.below.symbols.end());
  }
  return ranges;
}

} // namespace tbx::graph
