// widen_halves: float16 and bfloat16 values around matrix products and convolutions become float32 values.
// CPUs multiply float32, and every conversion between two nodes would be another pass over memory.
#include <algorithm>

#include "base/float_formats.h"
#include "graph/passes/match.h"
#include "graph/passes/passes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

using lowering::has;
using lowering::Trait;

constexpr int64_t kSmall = 1 << 16; ///< constants up to this many elements are converted here

class Widener {
public:
  Widener(Graph& graph, const PassContext& context)
      : g_(graph), context_(context), wide_(graph.values.size(), -1), read_(graph.values.size()) {}

  int run() {
    learn_types();
    if (std::none_of(g_.nodes.begin(), g_.nodes.end(), [&](const Node& n) { return is_wanted(n); })) return 0;
    for (ValueId id : g_.outputs) read_[id] = true;
    std::vector<Node> nodes = std::move(g_.nodes);
    g_.nodes.clear();
    for (Node& node : nodes) take(std::move(node));
    store_what_is_read();
    return count_;
  }

private:
  void learn_types() {
    for (const Node& node : g_.nodes) {
      const int giver = lowering::Registry::instance().type_giver(node);
      if (giver < 0 || !is_half_value(node.input(giver)) || !is_unknown(node.outputs[0])) continue;
      g_.at(node.outputs[0]).type.kind = ValueType::tensor;
      g_.at(node.outputs[0]).type.dtype = g_.at(node.input(giver)).type.dtype;
    }
  }

  bool is_unknown(ValueId id) const {
    if (id < 0) return false;
    const ValueType& type = g_.at(id).type;
    return type.kind == ValueType::unknown ||
           (type.kind == ValueType::tensor && type.dtype == DType::undefined);
  }

  bool is_half_value(ValueId id) const {
    return id >= 0 && g_.at(id).type.kind == ValueType::tensor && is_half(g_.at(id).type.dtype);
  }

  bool is_wanted(const Node& node) const {
    return has(Trait::half_product, node) && std::any_of(node.outputs.begin(), node.outputs.end(),
                                                         [&](ValueId id) { return is_half_value(id); });
  }

  bool should_widen(const Node& node) const {
    // An operand that may be of half precision beside wide ones would be of another type.
    if (std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return is_unknown(id); }))
      return false;
    if (is_wanted(node)) return true;
    auto is_wide = [&](ValueId id) { return id >= 0 && wide_[id] >= 0; };
    if (has(Trait::half_lookup, node)) return is_wide(node.input(0));
    if (has(Trait::half_rows, node)) return is_half_value(node.input(0));
    // Constants alone draw nobody in: their wide copies serve whoever asks.
    return has(Trait::half_follows, node) &&
           std::any_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId id) { return is_wide(id) && !g_.at(id).constant; });
  }

  void take(Node node) {
    for (ValueId& id : node.inputs)
      if (auto it = renamed_.find(id); it != renamed_.end()) id = it->second;
    if (hands_wide_value_on(node)) return;
    if (!should_widen(node)) {
      for (ValueId id : node.inputs)
        if (id >= 0) read_[id] = true;
      mark_captures(node);
      g_.nodes.push_back(std::move(node));
      return;
    }
    for (ValueId& id : node.inputs)
      if (is_half_value(id)) id = widened(id, node);
    std::vector<ValueId> results;
    for (ValueId& id : node.outputs)
      if (is_half_value(id)) {
        results.push_back(id);
        id = wide_[id] = new_value(id);
      }
    int origin = node.origin;
    std::string name = node.name;
    g_.nodes.push_back(std::move(node));
    // What nobody reads is taken out again at the end.
    for (ValueId id : results) g_.nodes.push_back(cast(wide_[id], id, name, origin));
    ++count_;
  }

  /// A Cast to float32 of what is float32 by now.
  bool hands_wide_value_on(const Node& node) {
    if (!node.domain.empty() || node.op_type != "Cast" || node.inputs.size() != 1) return false;
    ValueId from = node.inputs[0], to = node.outputs[0];
    if (from < 0 || wide_[from] < 0 || g_.at(from).constant || g_.at(to).type.dtype != DType::f32)
      return false;
    renamed_[to] = wide_[from];
    // Outputs of the graph and captures keep their name.
    Node copy = node;
    copy.op_type = "Identity";
    copy.attributes.clear();
    copy.inputs = {wide_[from]};
    g_.nodes.push_back(std::move(copy));
    return true;
  }

  ValueId widened(ValueId id, const Node& reader) {
    if (wide_[id] >= 0) return wide_[id];
    ValueId wide = wide_[id] = new_value(id);
    if (const auto& t = g_.at(id).constant; t && t->numel() <= kSmall) {
      Tensor decoded = Tensor::make(DType::f32, t->dims);
      decode_halves(t->dtype, t->as<uint16_t>().data(), t->numel(), decoded.as_mutable<float>().data());
      g_.at(wide).constant = std::make_shared<const Tensor>(std::move(decoded));
    } else {
      g_.nodes.push_back(cast(id, wide, reader.name, reader.origin));
      read_[id] = true;
    }
    return wide;
  }

  ValueId new_value(ValueId id) {
    Value v;
    v.name = g_.at(id).name + " as float32";
    v.type = g_.at(id).type;
    // Where halves are multiplied memory holds what the model says (narrow_storage). Elsewhere it holds
    // float32, also where `precision` narrows what the model has as float32.
    const DType half = v.type.dtype, asked = context_.stored;
    if (context_.target.multiplies(half))
      v.stored = half;
    else if (asked != DType::undefined && asked != half && !context_.halves_too)
      v.stored = DType::f32;
    v.type.dtype = DType::f32;
    g_.values.push_back(std::move(v));
    wide_.push_back(-1);
    read_.push_back(false);
    return static_cast<ValueId>(g_.values.size()) - 1;
  }

  Node cast(ValueId from, ValueId to, const std::string& name, int origin) const {
    Node n;
    n.name = name + "/as_" + std::string(name_of(g_.at(to).type.dtype));
    n.op_type = "Cast";
    n.opset = 13;
    n.inputs = {from};
    n.outputs = {to};
    n.attributes["to"] = static_cast<int64_t>(g_.at(to).type.dtype);
    n.origin = origin;
    return n;
  }

  void mark_captures(const Node& node) {
    for_each_capture(node, [&](const Graph::Capture& c) { read_[c.outer] = true; });
  }

  /// Values of half precision are kept where somebody still reads them.
  void store_what_is_read() {
    std::vector<Node> kept;
    for (Node& node : g_.nodes) {
      bool stores = node.op_type == "Cast" && node.domain.empty() && is_half_value(node.outputs[0]) &&
                    node.inputs[0] >= 0 && wide_[node.outputs[0]] == node.inputs[0];
      if (!stores || read_[node.outputs[0]]) kept.push_back(std::move(node));
    }
    g_.nodes = std::move(kept);
    set_producers(g_);
  }

  Graph& g_;
  const PassContext& context_;
  std::vector<ValueId> wide_; ///< the float32 form of a value, -1: none
  std::vector<bool> read_;    ///< somebody reads it in half precision
  std::map<ValueId, ValueId> renamed_;
  int count_ = 0;
};

} // namespace

int widen_halves(Graph& graph, const PassContext& context) { return Widener(graph, context).run(); }

} // namespace tbx::graph
