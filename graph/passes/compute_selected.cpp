// compute_selected: of values that are only read at one place of an axis, nothing else is computed. A
// classifier reads the first token of its encoder: all of the last layer behind its keys and values is for
// that token alone.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "graph/passes/match.h"
#include "graph/passes/passes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

constexpr int kNoAxis = -1;
using Shape = ir::SymInts;

/// A node gives what lies at `index` of `axis`.
struct Selection {
  int64_t index = 0;
  int axis = 0;
  bool keeps_axis = false; ///< the result has it, with one element
};

class Selector {
public:
  explicit Selector(Graph& graph) : e_(graph), g_(graph) {}

  int run() {
    int count = 0;
    const size_t nodes = g_.nodes.size();
    for (size_t i = 0; i < nodes; ++i)
      if (auto s = selection_of(g_.nodes[i])) count += narrow(static_cast<int>(i), *s);
    if (count > 0) insert();
    return count;
  }

private:
  const Shape* shape_of(ValueId id) const {
    return id >= 0 && g_.at(id).type.shape ? &*g_.at(id).type.shape : nullptr;
  }

  std::optional<int64_t> integer(ValueId id) const {
    const auto n = e_.number(id);
    return n ? std::optional(static_cast<int64_t>(*n)) : std::nullopt;
  }

  std::optional<Selection> selection_of(const Node& node) const {
    const Shape* shape = node.domain.empty() && !node.inputs.empty() ? shape_of(node.inputs[0]) : nullptr;
    if (!shape || g_.at(node.inputs[0]).constant) return std::nullopt;
    const auto rank = static_cast<int64_t>(shape->size());
    Selection s;
    int64_t axis = 0;
    if (node.op_type == "Gather") {
      const auto index = integer(node.inputs[1]);
      if (!index) return std::nullopt;
      s.index = *index;
      s.keeps_axis = g_.at(node.inputs[1]).constant->dims.size() == 1;
      if (g_.at(node.inputs[1]).constant->dims.size() > 1) return std::nullopt;
      axis = attribute_or<int64_t>(node, "axis", 0);
    } else if (node.op_type == "Slice" && node.opset >= 10 && node.inputs.size() >= 4) {
      const auto start = integer(node.inputs[1]), along = integer(node.inputs[3]);
      const Shape* given = shape_of(node.outputs[0]);
      if (!start || !along || !given) return std::nullopt;
      s.index = *start;
      s.keeps_axis = true;
      axis = *along;
      const int64_t at = axis + (axis < 0 ? rank : 0);
      if (at < 0 || at >= rank || !(*given)[at].is(1) || !(*shape)[at].is_constant()) return std::nullopt;
      const int64_t extent = (*shape)[at].constant();
      if (s.index < -extent || s.index >= extent) return std::nullopt; // starts are cut to the axis
    } else {
      return std::nullopt;
    }
    s.axis = static_cast<int>(axis + (axis < 0 ? rank : 0));
    const bool inside = s.axis >= 0 && s.axis < rank;
    return inside && !(*shape)[s.axis].is(1) ? std::optional(s) : std::nullopt;
  }

  /// The axis of an input that broadcasts with what has `rank` dimensions, `axis` among them.
  int aligned(ValueId id, int axis, size_t rank) const {
    const int at = axis - static_cast<int>(rank - shape_of(id)->size());
    return at < 0 || (*shape_of(id))[at].is(1) ? kNoAxis : at;
  }

  /// Of which axis each input is read at one place for one place of `axis` of the result, kNoAxis: as a
  /// whole; nullopt: the result at one place depends on others, or the node is not known.
  std::optional<std::vector<int>> axes_read(const Node& node, int axis) const {
    if (node.outputs.size() != 1 || node.inputs.empty()) return std::nullopt;
    for (ValueId id : node.inputs)
      if (id >= 0 && !shape_of(id)) return std::nullopt;
    auto axes = axes_of_kind(node, axis);
    // What a run may find to be 1 is read as a whole then.
    for (size_t i = 0; axes && i < axes->size(); ++i)
      if ((*axes)[i] != kNoAxis &&
          !ir::provably_equal((*shape_of(node.inputs[i]))[(*axes)[i]], (*shape_of(node.outputs[0]))[axis]))
        return std::nullopt;
    return axes;
  }

  std::optional<std::vector<int>> axes_of_kind(const Node& node, int axis) const {
    const size_t rank = shape_of(node.outputs[0])->size();
    const int back = static_cast<int>(rank) - axis; // from the end, 1: the last
    std::vector<int> axes(node.inputs.size(), kNoAxis);
    auto align = [&](size_t from, size_t end) {
      for (size_t i = from; i < std::min(end, axes.size()); ++i)
        if (node.inputs[i] >= 0) axes[i] = aligned(node.inputs[i], axis, rank);
    };
    auto before = [&](int64_t last) { return axis < last + (last < 0 ? static_cast<int64_t>(rank) : 0); };
    if (node.domain == "tensorbox" && node.op_type == "FusedAttention") {
      if (back != 2 || node.attributes.contains("windows")) return std::nullopt;
      align(0, 1); // masks may have more dimensions
      align(3, axes.size());
      return axes;
    }
    if (!node.domain.empty()) return std::nullopt;
    const std::string& op = node.op_type;
    if (node.opset >= 7 && lowering::has(lowering::Trait::elementwise, node)) {
      align(0, axes.size());
    } else if (op == "MatMul") {
      if (back == 1 || shape_of(node.inputs[0])->size() < 2 || shape_of(node.inputs[1])->size() < 2)
        return std::nullopt;
      align(0, back == 2 ? 1 : 2);
    } else if (op == "Gemm") {
      if (axis != 0 || attribute_or<int64_t>(node, "transA", 0) != 0) return std::nullopt;
      axes[0] = 0;
      align(2, 3);
    } else if (op == "LayerNormalization" || op == "RMSNormalization") {
      if (!before(attribute_or<int64_t>(node, "axis", -1))) return std::nullopt;
      align(0, axes.size());
    } else if (op == "Softmax" && node.opset >= 13) {
      const auto over = attribute_or<int64_t>(node, "axis", -1);
      if (axis == over + (over < 0 ? static_cast<int64_t>(rank) : 0)) return std::nullopt;
      axes[0] = axis;
    } else if (op == "Transpose") {
      const std::vector<int64_t> order = transpose_order(g_, node);
      if (order.empty()) return std::nullopt;
      axes[0] = static_cast<int>(order[axis]);
    } else if (op == "Reshape") {
      const int at = axis_before(node, axis);
      if (at == kNoAxis) return std::nullopt;
      axes[0] = at;
    } else {
      return std::nullopt;
    }
    return axes;
  }

  /// The dimension of a Reshape's input that its result has as `axis`.
  int axis_before(const Node& reshape, int axis) const {
    const Shape &from = *shape_of(reshape.inputs[0]), &to = *shape_of(reshape.outputs[0]);
    const Tensor* sizes = g_.at(reshape.inputs[1]).constant.get();
    if (!sizes) return kNoAxis;
    const auto until = [](const Shape& s, int n) { return ir::product(std::span(s).first(n)); };
    for (int at = 0; at < static_cast<int>(from.size()); ++at)
      if (ir::provably_equal(from[at], to[axis]) && ir::provably_equal(until(from, at), until(to, axis))) {
        const bool copied = at != axis && at < sizes->numel() && element_as_double(*sizes, at) == 0;
        return copied ? kNoAxis : at; // 0: another dimension of the result is that of the input
      }
    return kNoAxis;
  }

  /// What is worth it: all else is little work, and may be part of the product that it stands behind.
  static bool is_work(const Node& node) {
    return node.op_type == "MatMul" || node.op_type == "Gemm" || node.op_type == "FusedAttention";
  }

  /// Follows what node `at` selects up to what others read as well. True: some work is less by that.
  bool narrow(int at, const Selection& s) {
    using Read = std::pair<ValueId, int>; // a value, and the axis of which one place is read
    const ValueId selected = g_.nodes[at].inputs[0];
    std::map<Read, int> reads = {{{selected, s.axis}, 1}};
    std::map<int, std::vector<int>> narrowed; // nodes, with the axes of their inputs
    std::map<int, int> axis_of;               // of their results
    std::set<std::pair<int, Read>> open = {{g_.at(selected).producer, {selected, s.axis}}};
    // The last node first: by then all that read its result were seen.
    while (!open.empty()) {
      const auto [producer, read] = *open.rbegin();
      open.erase(std::prev(open.end()));
      if (producer < 0 || reads[read] != e_.uses(read.first)) continue;
      auto axes = axes_read(g_.nodes[producer], read.second);
      if (!axes) continue;
      const Node& node = g_.nodes[producer];
      for (size_t i = 0; i < axes->size(); ++i)
        if ((*axes)[i] != kNoAxis) {
          const Read next{node.inputs[i], (*axes)[i]};
          ++reads[next];
          open.emplace(g_.at(next.first).producer, next);
        }
      axis_of[producer] = read.second;
      narrowed.emplace(producer, std::move(*axes));
    }
    if (std::none_of(narrowed.begin(), narrowed.end(),
                     [&](const auto& n) { return is_work(g_.nodes[n.first]); }))
      return false;
    std::map<Read, ValueId> made;
    for (const auto& [read, count] : reads)
      if (const int producer = g_.at(read.first).producer; !narrowed.contains(producer))
        made[read] = add_selection(at, read.first, read.second, s.index);
    for (const auto& [i, axes] : narrowed) {
      Node node = g_.nodes[i];
      for (size_t k = 0; k < axes.size(); ++k)
        if (axes[k] != kNoAxis) node.inputs[k] = made.at({node.inputs[k], axes[k]});
      if (node.op_type == "Reshape") node.inputs[1] = shape_with_one(node, axis_of[i]);
      const ValueId result = node.outputs[0];
      node.outputs = {made[{result, axis_of[i]}] = one_of(result, axis_of[i])};
      made_[at].push_back(std::move(node));
    }
    Node& last = g_.nodes[at];
    Tensor zero = Tensor::make(DType::i64, std::vector<int64_t>(s.keeps_axis ? 1 : 0, 1));
    zero.as_mutable<int64_t>()[0] = 0;
    e_.become(last, "Gather", 13, {made.at({selected, s.axis}), e_.add_constant(std::move(zero), "")},
              {{"axis", int64_t{s.axis}}});
    return true;
  }

  /// The type of a value with one element of `axis`.
  ValueId one_of(ValueId id, int axis) {
    ValueType type = g_.at(id).type;
    (*type.shape)[axis] = 1;
    const DType stored = g_.at(id).stored;
    const ValueId made = e_.add_value(g_.at(id).name + " selected", std::move(type));
    g_.at(made).stored = stored;
    return made;
  }

  ValueId add_selection(int at, ValueId of, int axis, int64_t index) {
    Tensor place = Tensor::make(DType::i64, {1});
    place.as_mutable<int64_t>()[0] = index;
    Node node;
    if (const std::string& name = g_.nodes[at].name; !name.empty())
      node.name = name + " of " + g_.at(of).name;
    node.origin = g_.nodes[at].origin;
    node.op_type = "Gather";
    node.opset = 13;
    node.inputs = {of, e_.add_constant(std::move(place), "")};
    node.outputs = {one_of(of, axis)};
    node.attributes = {{"axis", int64_t{axis}}};
    made_[at].push_back(node);
    return node.outputs[0];
  }

  /// What a Reshape is to make of its narrowed input.
  ValueId shape_with_one(const Node& reshape, int axis) {
    const Tensor& old = *g_.at(reshape.inputs[1]).constant;
    Tensor shape = Tensor::make(DType::i64, old.dims);
    for (int64_t k = 0; k < old.numel(); ++k)
      shape.as_mutable<int64_t>()[k] = k == axis ? 1 : static_cast<int64_t>(element_as_double(old, k));
    return e_.add_constant(std::move(shape), "");
  }

  /// The new nodes stand before the selection that they are for: all that they read is made by then.
  void insert() {
    std::vector<Node> nodes;
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (auto it = made_.find(static_cast<int>(i)); it != made_.end())
        std::move(it->second.begin(), it->second.end(), std::back_inserter(nodes));
      nodes.push_back(std::move(g_.nodes[i]));
    }
    g_.nodes = std::move(nodes);
    set_producers(g_);
  }

  Editor e_;
  Graph& g_;
  std::map<int, std::vector<Node>> made_; ///< by the node that they stand before
};

} // namespace

int compute_selected(Graph& graph) { return Selector(graph).run(); }

} // namespace tbx::graph
