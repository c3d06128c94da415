#include "driver/input_ranges.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace tbx::driver {
namespace {

/// A bound of the elements of a value: a number, or a number that a dimension decides.
struct Bound {
  int64_t number = INT64_MAX;
  std::set<std::string> symbols;

  void lower_to(int64_t n) { number = std::min(number, n); }
  void lower_to(const Bound& other) {
    lower_to(other.number);
    symbols.insert(other.symbols.begin(), other.symbols.end());
  }
};

/// What a node needs the elements of one of its inputs to be.
struct Need {
  int64_t least = 0;
  Bound below;
  bool distinct = false;
};

Bound number(int64_t n) { return {n, {}}; }

/// The elements are `scale` times those of the graph's input, plus `shift`.
struct Linear {
  int64_t scale = 1, shift = 0;
};

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
Need count_along(const Graph& g, ValueId v, int64_t axis) {
  Bound b = dimension(g, v, axis);
  return {1, number(b.symbols.empty() && b.number < INT64_MAX ? b.number + 1 : 2), false};
}

Need axis_of(const Graph& g, ValueId v) {
  const auto* shape = shape_of(g, v);
  return {0, number(shape ? std::max<int64_t>(1, static_cast<int64_t>(shape->size())) : 1), true};
}

/// The indices of GatherND and ScatterND are tuples along their last dimension.
Need index_tuple(const Graph& g, const Node& n, ValueId data, ValueId indices) {
  const auto* shape = shape_of(g, indices);
  auto k = shape && !shape->empty() ? shape->back().as_constant() : std::nullopt;
  return {0, k ? dimensions(g, data, attribute(n, "batch_dims", 0), std::min<int64_t>(*k, 64)) : number(1),
          false};
}

using NeedOf = std::function<Need(const Graph&, const Node&)>;
using Place =
    std::pair<std::string, size_t>; ///< operator (with its domain, where that is not ai.onnx), input

const std::map<Place, NeedOf>& needs() {
  auto index = [](size_t data, const char* axis, int64_t otherwise) {
    return [=](const Graph& g, const Node& n) {
      return index_along(g, n.input(data), axis ? attribute(n, axis, otherwise) : otherwise);
    };
  };
  auto tuple = [](const Graph& g, const Node& n) { return index_tuple(g, n, n.input(0), n.input(1)); };
  auto count = [](size_t data, int64_t axis) {
    return [=](const Graph& g, const Node& n) { return count_along(g, n.input(data), axis); };
  };
  auto axis = [](const Graph& g, const Node& n) { return axis_of(g, n.input(0)); };
  auto new_axis = [](const Graph& g, const Node& n) {
    return axis_of(g, n.outputs.empty() ? -1 : n.outputs[0]);
  };
  auto between = [](int64_t least, int64_t below) {
    return [=](const Graph&, const Node&) { return Need{least, number(below), false}; };
  };
  const auto some = between(1, 8), one = between(1, 2), zero = between(0, 1);
  // A position goes on with every row: the first one leaves room for all.
  auto position = [](size_t positions, size_t table) {
    return [=](const Graph& g, const Node& n) {
      const auto* shape = shape_of(g, n.input(positions));
      return shape && shape->size() == 2 ? index_along(g, n.input(table), 0) : Need{0, number(1), false};
    };
  };
  static const std::map<Place, NeedOf> table = {
      {{"Gather", 1}, index(0, "axis", 0)},
      {{"GatherElements", 1}, index(0, "axis", 0)},
      {{"ScatterElements", 1}, index(0, "axis", 0)},
      {{"Scatter", 1}, index(0, "axis", 0)},
      {{"GatherND", 1}, tuple},
      {{"ScatterND", 1}, tuple},
      {{"TensorScatter", 2}, zero},
      {{"MaxUnpool", 1}, zero},
      {{"SequenceAt", 1}, zero},
      {{"SequenceErase", 1}, zero},
      {{"SequenceInsert", 2}, zero},
      {{"ai.onnx.ml.ArrayFeatureExtractor", 1}, index(0, nullptr, -1)},
      {{"NegativeLogLikelihoodLoss", 1}, index(0, nullptr, 1)},
      {{"SoftmaxCrossEntropyLoss", 1}, index(0, nullptr, 1)},
      {{"RoiAlign", 2}, index(0, nullptr, 0)},
      {{"com.microsoft.CropAndResize", 2}, index(0, nullptr, 0)},
      {{"com.microsoft.GatherND", 1}, tuple},
      {{"com.microsoft.GatherBlockQuantized", 1}, index(0, "gather_axis", 0)},
      {{"com.microsoft.EmbedLayerNormalization", 0}, index(2, nullptr, 0)},
      {{"com.microsoft.EmbedLayerNormalization", 1}, index(4, nullptr, 0)},
      {{"com.microsoft.EmbedLayerNormalization", 8}, index(3, nullptr, 0)},
      {{"RotaryEmbedding", 3}, index(1, nullptr, 0)},
      {{"com.microsoft.RotaryEmbedding", 1}, position(1, 2)},
      {{"com.microsoft.GroupQueryAttention", 5}, zero},
      {{"com.microsoft.GroupQueryAttention", 6},
       [](const Graph& g, const Node& n) {
         Bound queries = dimension(g, n.input(0), 1);
         const int64_t least = queries.symbols.empty() ? std::clamp<int64_t>(queries.number, 1, 1 << 30) : 1;
         return Need{least, number(least + 1), false};
       }},
      {{"com.microsoft.GroupQueryAttention", 9}, position(9, 7)},
      {{"TopK", 1},
       [](const Graph& g, const Node& n) { return count_along(g, n.input(0), attribute(n, "axis", -1)); }},
      {{"ReverseSequence", 1},
       [](const Graph& g, const Node& n) {
         return count_along(g, n.input(0), attribute(n, "time_axis", 0));
       }},
      {{"RNN", 4}, count(0, 0)},
      {{"GRU", 4}, count(0, 0)},
      {{"LSTM", 4}, count(0, 0)},
      {{"Attention", 6}, count(1, -2)},
      {{"Expand", 1}, one},
      {{"Tile", 1}, between(1, 3)},
      {{"ConstantOfShape", 0}, some},
      {{"OneHot", 1}, some},
      {{"Range", 1}, some},
      {{"Range", 2}, one},
      {{"Resize", 3}, some},
      {{"Loop", 0}, some},
      {{"Slice", 1}, zero},
      {{"Slice", 2}, some},
      {{"Slice", 3}, axis},
      {{"Slice", 4}, one},
      {{"Pad", 1}, between(0, 2)},
      {{"Pad", 3}, axis},
      {{"Div", 1}, some},
      {{"Mod", 1}, some},
      {{"Squeeze", 1}, axis},
      {{"Unsqueeze", 1}, new_axis},
      {{"CumSum", 1}, axis},
      {{"CumProd", 1}, axis},
      {{"DFT", 2}, one},
      {{"HannWindow", 0}, some},
      {{"HammingWindow", 0}, some},
      {{"BlackmanWindow", 0}, some},
      // What is summed counts: a mask, of which all is let through.
      {{"CumSum", 0}, one},
      {{"ReduceSum", 0}, one},
      {{"ReduceSum", 1}, axis},
      {{"ReduceMean", 1}, axis},
      {{"ReduceMax", 1}, axis},
      {{"ReduceMin", 1}, axis},
      {{"ReduceProd", 1}, axis},
      {{"ReduceL1", 1}, axis},
      {{"ReduceL2", 1}, axis},
      {{"ReduceLogSum", 1}, axis},
      {{"ReduceLogSumExp", 1}, axis},
      {{"ReduceSumSquare", 1}, axis},
  };
  return table;
}

/// Inputs whose elements come out again, unchanged.
bool passes_on(const Node& n, size_t input) {
  static const std::set<std::string> kFirst = {
      "Identity",  "Cast",  "CastLike", "Reshape",        "Flatten",   "Squeeze", "Unsqueeze",
      "Transpose", "Slice", "Gather",   "GatherElements", "GatherND",  "Expand",  "Tile",
      "Pad",       "Split", "Clip",     "ReduceMax",      "ReduceMin", "Trilu",   "Compress"};
  static const std::set<std::string> kEvery = {"Concat", "Min", "Max"};
  if (!n.domain.empty()) return false;
  return kEvery.count(n.op_type) || (input == 0 && kFirst.count(n.op_type)) ||
         (input > 0 && n.op_type == "Where");
}

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
    auto need = needs().find({n.domain.empty() ? n.op_type : n.domain + "." + n.op_type, input});
    if (need != needs().end()) narrow(need->second(g, n), e);
    if (n.domain.empty() && n.op_type == "Loop" && input >= 2)
      for_each_body(n, [&](Graph& body) {
        if (input < body.inputs.size()) follow(body, body.inputs[input], e);
      });
    std::optional<Linear> next = passes_on(n, input) ? std::optional(e) : after(g, n, input, e);
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

std::map<std::string, IntegerRange> ranges_of_inputs(const Graph& graph) {
  std::map<std::string, IntegerRange> ranges;
  Follower follower;
  for (ValueId v : graph.inputs) {
    if (v < 0 || graph.at(v).type.kind != ValueType::tensor || !is_integer(graph.at(v).type.dtype)) continue;
    const Need found = follower.follow_input(graph, v);
    if (found.least == INT64_MIN) continue; // nothing was reached
    IntegerRange& r = ranges[graph.at(v).name];
    r.least = std::max<int64_t>(0, found.least);
    r.distinct = found.distinct;
    if (found.below.number < INT64_MAX) r.below.push_back(std::to_string(found.below.number));
    r.below.insert(r.below.end(), found.below.symbols.begin(), found.below.symbols.end());
  }
  return ranges;
}

} // namespace tbx::driver
