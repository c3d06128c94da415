// narrow_storage: decides for every float32 value of a graph whether memory holds it as float32 or as a
// narrower float. Products then multiply narrow operands and add in float32; loop nests compute in float32
// whatever they load and store. Nothing is rounded between nodes that share a kernel.
#include <algorithm>
#include <map>
#include <utility>

#include "graph/passes/match.h"
#include "graph/passes/narrow.h"
#include "graph/passes/passes.h"
#include "lowering/op_registry.h"

namespace tbx::graph {
namespace {

using lowering::Narrow;

bool is_float_value(const Graph& g, ValueId id) {
  return id >= 0 && g.at(id).type.kind == ValueType::tensor && is_float(g.at(id).type.dtype);
}

Narrow trait_of(const Graph& g, const Node& node) {
  if (node.custom) return Narrow::sensitive;
  // Between floats a Cast is a store; of an integer, or to one, every bit counts.
  if (node.domain.empty() && node.op_type == "Cast" && is_float_value(g, node.input(0)) &&
      is_float_value(g, node.outputs[0]))
    return Narrow::wide_inputs;
  const lowering::OpEntry* entry = lowering::Registry::instance().find(node.domain, node.op_type, node.opset);
  return entry ? entry->narrow : Narrow::sensitive;
}

class Narrower {
public:
  /// `all`: every value may become narrow but those of which Value::stored says another type; else those of
  /// which it says this one.
  Narrower(Graph& graph, const PassContext& context, DType type, bool all)
      : e_(graph), g_(graph), context_(context), type_(type), all_(all), cuda_(context.target.cuda) {
    for (const Value& v : graph.values)
      of_another_.push_back(v.stored != DType::undefined && v.stored != type);
  }

  int run() {
    find_readers();
    find_wide();
    int count = 0;
    before_ = std::exchange(g_.nodes, {});
    for (size_t i = 0; i < before_.size(); ++i) {
      Node node = before_[i];
      for (ValueId id : node.outputs)
        if (id >= 0 && !keeps_half(id)) {
          const DType stored = wide_[id] && !stays_narrow(node, id) ? DType::undefined : type_;
          count += g_.at(id).stored != stored;
          g_.at(id).stored = stored;
        }
      if (trait_of(g_, node) == Narrow::product && !exact_node_[i]) count += narrow_operands(node);
      if (is_recurrent(node)) count += narrow_gates(node);
      g_.nodes.push_back(std::move(node));
    }
    set_producers(g_);
    return count;
  }

private:
  /// Libraries of GPUs give convolutions of halves as halves, which is what a model of halves says.
  bool stays_narrow(const Node& node, ValueId id) const {
    return cuda_ && !all_ && g_.at(id).stored == type_ && has(lowering::Trait::convolves, node);
  }

  /// Memory holds it as something else than `type_`, whatever reads it.
  bool is_of_another(ValueId id) const {
    return static_cast<size_t>(id) < of_another_.size() && of_another_[id];
  }
  bool keeps_half(ValueId id) const { return is_of_another(id) && is_half(g_.at(id).stored); }

  bool is_f32(ValueId id) const {
    return id >= 0 && g_.at(id).type.kind == ValueType::tensor && g_.at(id).type.dtype == DType::f32;
  }

  void find_readers() {
    readers_.resize(g_.values.size());
    wide_.assign(g_.values.size(), false);
    exact_.assign(g_.values.size(), false);
    exact_node_.assign(g_.nodes.size(), false);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      for (ValueId id : g_.nodes[i].inputs)
        if (id >= 0) readers_[id].push_back(static_cast<int>(i));
      for_each_capture(g_.nodes[i], [&](const Graph::Capture& c) { wide_[c.outer] = true; });
    }
    for (ValueId id : g_.outputs) wide_[id] = true;
    for (size_t v = 0; v < g_.values.size(); ++v) {
      const Value& value = g_.values[v];
      wide_[v] = wide_[v] || !is_f32(static_cast<ValueId>(v)) || value.constant || value.producer < 0 ||
                 (all_ ? of_another_[v] : value.stored != type_);
    }
  }

  /// From the end to the begin, since readers decide; again while views hand a decision to other readers.
  void find_wide() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = g_.nodes.size(); i-- > 0;) changed |= decide(static_cast<int>(i));
    }
  }

  bool decide(int i) {
    const Node& node = g_.nodes[i];
    const Narrow trait = trait_of(g_, node);
    bool changed = false;
    auto set = [&](std::vector<bool>& flags, ValueId id) {
      if (!flags[id]) changed = flags[id] = true;
    };
    for (ValueId id : node.outputs) {
      if (id < 0) continue;
      if (trait == Narrow::sensitive) set(wide_, id);
      const auto& readers = readers_[id];
      if (readers.empty() || !is_f32(id)) continue;
      auto all = [&](auto&& wants) { return std::all_of(readers.begin(), readers.end(), wants); };
      // What serves only what needs it exact is exact, and what serves only what stays wide is wide.
      if (all([&](int r) { return wants_exact(r); })) set(exact_, id);
      if (exact_[id] || all([&](int r) { return wants_wide(r); })) set(wide_, id);
      if (std::any_of(readers.begin(), readers.end(), [&](int r) { return needs_wide(r, id); }))
        set(wide_, id);
    }
    if (trait == Narrow::view) {
      // One memory.
      bool wide = false;
      auto look = [&](ValueId id) { wide |= is_f32(id) && !g_.at(id).constant && wide_[id]; };
      look(node.input(0));
      for (ValueId id : node.outputs) look(id);
      if (wide) {
        if (is_f32(node.input(0))) set(wide_, node.inputs[0]);
        for (ValueId id : node.outputs)
          if (is_f32(id)) set(wide_, id);
      }
    }
    const bool exact = !node.outputs.empty() &&
                       std::all_of(node.outputs.begin(), node.outputs.end(),
                                   [&](ValueId id) { return id < 0 || (is_f32(id) && exact_[id]); });
    if (exact && !exact_node_[i]) changed = exact_node_[i] = true;
    return changed;
  }

  /// Of a value that node `r` reads.
  bool needs_wide(int r, ValueId id) const {
    const Node& node = g_.nodes[r];
    const Narrow trait = trait_of(g_, node);
    // The lowest float32, with which masks are made, would be no number in fewer bits, but -inf.
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == id && lowering::Registry::instance().is_mask(node, static_cast<int>(i)))
        return true;
    // A Cast to the narrow type gives what memory holds then anyway, as an output of a cache does.
    const bool stores = trait == Narrow::wide_inputs && node.op_type == "Cast" && cuda_ &&
                        g_.at(node.outputs[0]).type.dtype == type_;
    return trait == Narrow::sensitive || (trait == Narrow::wide_inputs && !stores);
  }
  bool wants_exact(int r) const { return trait_of(g_, g_.nodes[r]) == Narrow::sensitive || exact_node_[r]; }
  bool wants_wide(int r) const {
    const Node& node = g_.nodes[r];
    const Narrow trait = trait_of(g_, node);
    if (trait == Narrow::sensitive || trait == Narrow::wide_inputs) return true;
    if (trait == Narrow::product) return exact_node_[r];
    return std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId id) { return id < 0 || wide_[id]; });
  }

  /// Weights in the narrow type, and what they multiply through memory of that type.
  int narrow_operands(Node& node) {
    constexpr int w = 1;
    if (!has(lowering::Trait::has_weights, node) || !is_f32(node.input(0)) || g_.at(node.inputs[0]).constant)
      return 0;
    const ValueId weights = node.input(w);
    if (!is_f32(weights) || is_of_another(weights) || is_of_another(node.inputs[0])) return 0;
    if (g_.at(weights).constant) {
      if (node.op_type == "MatMul" && g_.at(weights).constant->dims.size() != 2) return 0;
      if (narrowed(weights) < 0) return 0;
      node.inputs[w] = narrowed(weights);
    } else if (const Node* turn = transpose_of_matrix(g_, before_, weights)) {
      if (narrowed(turn->inputs[0]) < 0) return 0;
      node.inputs[w] = turned(*turn);
    } else if (!is_widened_constant(weights)) {
      return 0;
    }
    if (g_.at(node.inputs[0]).stored != type_) node.inputs[0] = stored(node.inputs[0], node);
    return 1;
  }

  /// Layers whose gates multiply the input and the state by constants.
  bool is_recurrent(const Node& node) const {
    return !cuda_ && type_ == DType::bf16 && has(lowering::Trait::has_gates, node);
  }

  /// What comes out of gates is float32; what they multiply is not.
  int narrow_gates(Node& node) {
    if (!is_f32(node.input(0)) || g_.at(node.inputs[0]).constant || is_of_another(node.inputs[0])) return 0;
    for (const int w : {1, 2})
      if (!is_f32(node.input(w)) || !g_.at(node.inputs[w]).constant || narrowed(node.inputs[w]) < 0) return 0;
    for (const int w : {1, 2}) node.inputs[w] = narrowed(node.inputs[w]);
    if (g_.at(node.inputs[0]).stored != type_) node.inputs[0] = stored(node.inputs[0], node);
    return 1;
  }

  /// The same view of the narrowed constant.
  ValueId turned(const Node& turn) {
    auto [it, fresh] = turned_.try_emplace(turn.outputs[0], -1);
    if (!fresh) return it->second;
    Node n = turn;
    n.inputs[0] = narrowed(turn.inputs[0]);
    const Value whole = g_.at(turn.outputs[0]);
    it->second = e_.add_value(whole.name, whole.type);
    g_.at(it->second).type.dtype = type_;
    n.outputs[0] = it->second;
    g_.nodes.push_back(std::move(n));
    return it->second;
  }

  /// Large constants that are narrow already stay so behind a Cast (widen_halves), which their kernel sees
  /// through.
  bool is_widened_constant(ValueId id) const {
    const int producer = g_.at(id).producer;
    if (producer < 0) return false;
    const Node& cast = before_[producer];
    const ValueId from = cast.input(0);
    return cast.domain.empty() && cast.op_type == "Cast" && from >= 0 && g_.at(from).constant &&
           g_.at(from).type.dtype == type_;
  }

  /// -1: one of its numbers would become infinite.
  ValueId narrowed(ValueId id) {
    auto [it, fresh] = narrowed_.try_emplace(id, -1);
    if (!fresh) return it->second;
    if (auto tensor = narrow_constant(type_, *g_.at(id).constant, context_))
      it->second = e_.add_constant(std::move(*tensor), g_.at(id).name);
    return it->second;
  }

  /// A value of its own for what memory does not hold narrow.
  ValueId stored(ValueId id, const Node& reader) {
    auto [it, fresh] = stored_.try_emplace(id, -1);
    if (!fresh) return it->second;
    Node n;
    n.name = reader.name + "/stored";
    n.op_type = "Store";
    n.domain = "tensorbox";
    n.opset = 1;
    n.inputs = {id};
    n.origin = reader.origin;
    it->second = e_.add_value(g_.at(id).name, g_.at(id).type);
    g_.at(it->second).stored = type_;
    n.outputs = {it->second};
    g_.nodes.push_back(std::move(n));
    return it->second;
  }

  Editor e_;
  Graph& g_;
  const PassContext& context_;
  DType type_;
  bool all_, cuda_;
  std::vector<Node> before_; ///< the nodes as they were
  std::vector<std::vector<int>> readers_;
  std::vector<char> of_another_; ///< by value: memory holds it in a type that is not ours
  std::vector<bool> wide_;       ///< by value: memory holds it as it is
  std::vector<bool> exact_;      ///< by value: only what is sensitive sees it
  std::vector<bool> exact_node_; ///< all its results are exact
  std::map<ValueId, ValueId> narrowed_, stored_, turned_;
};

} // namespace

int narrow_storage(Graph& graph, const PassContext& context) {
  int count = 0;
  if (context.stored != DType::undefined) {
    if (context.halves_too)
      for (Value& v : graph.values) v.stored = DType::undefined;
    count += Narrower(graph, context, context.stored, true).run();
  }
  // A model of halves stays one where they are multiplied: widen_halves has left word of what they were.
  for (const Value& v : graph.values)
    if (is_half(v.stored) && v.stored != context.stored)
      return count + Narrower(graph, context, v.stored, false).run();
  return count;
}

} // namespace tbx::graph
