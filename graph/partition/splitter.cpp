#include "graph/partition/splitter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "graph/function_body.h"
#include "graph/partition/graph_part.h"
#include "graph/partition/value_graph.h"
#include "lowering/op_registry.h"
#include "runtime/generation/generation.h"
#include "runtime/value_op.h"

namespace tbx::graph {
namespace {

bool is_control(const Node& n) {
  return runtime::find_generation_op(n.domain, n.op_type) || has(lowering::Trait::runs_bodies, n);
}

bool runs_on_values(const Node& n) {
  return is_control(n) || runtime::find_value_op(n.domain, n.op_type, n.opset);
}

ValueId first_output(const Node& n) {
  for (ValueId v : n.outputs)
    if (v >= 0) return v;
  return -1;
}

ValueId place(const LoweredPart& part, ValueId v) {
  return v >= 0 && v < static_cast<ValueId>(part.from.size()) ? part.from[v] : -1;
}

} // namespace

Splitter::Splitter(Graph& g) : g_(g) {
  number_strings(g_);
  mark_by_type();
  split();
}

bool Splitter::meet(const LoweredPart& part, const lowering::Demand& demand) {
  if (demand.kind == lowering::Demand::Kind::assumptions) return false;
  const int node = original(part, demand.node);
  if (demand.kind != lowering::Demand::Kind::split) {
    if (!cut(part, node, demand.values)) return false;
  } else {
    if (node < 0 || !mark(node)) return false;
    remember(node);
  }
  split();
  return true;
}

bool Splitter::runs_later(const Part& part) {
  bool news = false;
  for (int i : part.nodes)
    if (is_control(g_.nodes[i])) {
      on_values_[i] = 1;
      remember(i);
      news = true;
    }
  if (news) split();
  return news;
}

/// Marks a node, or puts the body of its operator in its place. False when neither is possible.
bool Splitter::mark(int node) {
  if (runs_on_values(g_.nodes[node])) {
    on_values_[node] = 1;
    return true;
  }
  if (!inline_function(g_, static_cast<size_t>(node))) return false;
  number_strings(g_);
  mark_by_type();
  return true;
}

void Splitter::mark_by_type() {
  ++version_;
  while (!try_mark_by_type()) number_strings(g_);
}

/// False when the body of an operator was put in its place: then all is to be looked at again.
bool Splitter::try_mark_by_type() {
  on_values_.assign(g_.nodes.size(), 0);
  const std::vector<char> live = live_nodes(g_);
  for (size_t i = 0; i < g_.nodes.size(); ++i) {
    const Node& n = g_.nodes[i];
    if (!live[i]) continue;
    const bool of_values =
        n.domain == "tensorbox" && !lowering::Registry::instance().find(n.domain, n.op_type, n.opset);
    bool special = of_values || runtime::find_generation_op(n.domain, n.op_type) ||
                   has(lowering::Trait::on_values, n) ||
                   forced_.count(n.outputs.empty() ? -1 : first_output(n));
    for (ValueId v : values_read(n)) special |= !is_numeric(g_.at(v).type);
    for (ValueId v : n.outputs) special |= v >= 0 && !is_numeric(g_.at(v).type);
    if (!special) continue;
    if (runs_on_values(n)) {
      on_values_[i] = 1;
    } else if (inline_function(g_, i)) {
      return false;
    } else {
      Error e(ErrorKind::unsupported,
              fmt::format("operator {}{} does not take values of these types: {}",
                          n.domain.empty() ? "" : n.domain + ".", n.op_type, types_of(n)),
              "`tbx ops` lists the supported operators");
      e.set_where(describe(g_, n));
      throw e;
    }
  }
  return true;
}

std::string Splitter::types_of(const Node& n) const {
  std::vector<std::string> texts;
  for (ValueId v : n.inputs) texts.push_back(v < 0 ? "-" : type_text(g_.at(v).type));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// By levels: a part is as large as the data flow allows.
void Splitter::split() {
  const std::vector<char> live = live_nodes(g_);
  std::vector<int> level_of(g_.values.size(), 0); ///< 2 * level, + 1 when made by a node on values
  std::vector<std::vector<int>> tensor_nodes;
  value_nodes_.clear();
  for (size_t i = 0; i < g_.nodes.size(); ++i) {
    if (!live[i]) continue;
    int at = 0;
    for (ValueId v : values_read(g_.nodes[i])) at = std::max(at, level_of[v]);
    if (auto late = needed_.find(first_output(g_.nodes[i])); late != needed_.end())
      for (ValueId v : late->second) // in a part behind the one that makes them
        at = std::max(at, g_.at(v).producer < 0 ? 0 : (level_of[v] | 1) + 1);
    if (on_values_[i])
      at |= 1;
    else
      at += at & 1;
    for (ValueId v : g_.nodes[i].outputs)
      if (v >= 0) level_of[v] = at;
    const auto level = static_cast<size_t>(at / 2);
    if (tensor_nodes.size() <= level) {
      tensor_nodes.resize(level + 1);
      value_nodes_.resize(level + 1);
    }
    (on_values_[i] ? value_nodes_ : tensor_nodes)[level].push_back(static_cast<int>(i));
  }
  parts_.clear();
  for (std::vector<int>& nodes : tensor_nodes) parts_.push_back({std::move(nodes), {}, {}});
  set_borders();
}

void Splitter::set_borders() {
  std::vector<int> made_in(g_.values.size(), -1); ///< part
  for (size_t p = 0; p < parts_.size(); ++p)
    for (int i : parts_[p].nodes)
      for (ValueId v : g_.nodes[i].outputs)
        if (v >= 0) made_in[v] = static_cast<int>(p);
  std::vector<std::set<ValueId>> inputs(parts_.size()), outputs(parts_.size());
  auto used = [&](ValueId v, int by) { // by: part, -1: nodes on values and the graph's outputs
    if (v < 0 || g_.at(v).constant || (by >= 0 && made_in[v] == by)) return;
    if (by >= 0) inputs[by].insert(v);
    if (made_in[v] >= 0) outputs[made_in[v]].insert(v);
  };
  for (size_t p = 0; p < parts_.size(); ++p)
    for (int i : parts_[p].nodes)
      for (ValueId v : values_read(g_.nodes[i])) used(v, static_cast<int>(p));
  for (const auto& nodes : value_nodes_)
    for (int i : nodes)
      for (ValueId v : values_read(g_.nodes[i])) used(v, -1);
  for (ValueId v : g_.outputs) used(v, -1);
  for (size_t p = 0; p < parts_.size(); ++p) {
    parts_[p].inputs.assign(inputs[p].begin(), inputs[p].end());
    parts_[p].outputs.assign(outputs[p].begin(), outputs[p].end());
  }
}

void Splitter::remember(int node) {
  if (node < static_cast<int>(g_.nodes.size()) && on_values_[node])
    forced_.insert(first_output(g_.nodes[node]));
}

/// What a node must know while it is compiled is made from data: it goes into a later part, which is compiled
/// for the values of a run. False when it is there already.
bool Splitter::cut(const LoweredPart& part, int node, const std::vector<ValueId>& values) {
  if (node < 0) return false;
  std::set<ValueId>& needed = needed_[first_output(g_.nodes[node])];
  const size_t before = needed.size();
  for (ValueId w : values)
    if (ValueId v = place(part, w); v >= 0 && g_.at(v).producer >= 0) needed.insert(v);
  return needed.size() > before;
}

/// The node of the whole graph that makes what this node of the part makes: passes may have changed the part.
int Splitter::original(const LoweredPart& part, int node) const {
  if (node < 0) return -1;
  for (ValueId v : part.graph.nodes[node].outputs)
    if (ValueId w = place(part, v); w >= 0) return g_.at(w).producer;
  return -1;
}

} // namespace tbx::graph
