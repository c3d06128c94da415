#include "graph/differentiate/gradient.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "graph/differentiate/reverse.h"
#include "graph/names.h"
#include "graph/node_attributes.h"

namespace tbx::graph {
namespace {

bool is_gradient(const Node& n) { return n.domain == "ai.onnx.preview.training" && n.op_type == "Gradient"; }

ValueId named(const Graph& g, const std::string& name) {
  for (size_t v = 0; v < g.values.size(); ++v)
    if (g.values[v].name == name) return static_cast<ValueId>(v);
  throw_model_error("there is no tensor {} to differentiate", shown(name));
}

template <class T> T attribute(const Node& node, const char* name) {
  const T* value = checked_attribute<T>(node, name);
  return value ? *value : T{};
}

/// Differentiates for one Gradient node; `done` are the nodes before it.
class Differentiator {
public:
  Differentiator(Graph& g, std::span<const Node> done, const Node& node, std::vector<Node>& out)
      : g_(g), done_(done), node_(node), out_(out) {}

  void run() {
    auto xs = attribute<std::vector<std::string>>(node_, "xs"),
         zs = attribute<std::vector<std::string>>(node_, "zs");
    auto y_name = attribute<std::string>(node_, "y");
    TBX_MODEL(!xs.empty() && !y_name.empty(), "attributes 'xs' and 'y' are needed");
    TBX_MODEL(node_.inputs.size() == xs.size() + zs.size(), "{} inputs for {} names in 'xs' and 'zs'",
              node_.inputs.size(), xs.size() + zs.size());
    TBX_MODEL(node_.outputs.size() <= xs.size(), "{} outputs for {} names in 'xs'", node_.outputs.size(),
              xs.size());
    std::vector<ValueId> sources;
    for (size_t i = 0; i < xs.size() + zs.size(); ++i) {
      sources.push_back(named(g_, i < xs.size() ? xs[i] : zs[i - xs.size()]));
      TBX_MODEL(node_.inputs[i] >= 0, "input {} is missing", i);
      here_[sources.back()] = node_.inputs[i];
    }
    ValueId y = named(g_, y_name);
    collect(y, sources);
    clone_forward();
    Reverse r(g_, out_, node_.origin, forward_);
    r.vary({node_.inputs.begin(), node_.inputs.begin() + static_cast<std::ptrdiff_t>(xs.size())});
    r.give(at(y), r.b.filled(at(y), 1));
    r.run();
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      if (node_.outputs[i] < 0) continue;
      ValueId g = r.gradient(node_.inputs[i]);
      if (g < 0) g = r.b.filled(node_.inputs[i], 0);
      Node copy;
      copy.name = node_.name;
      copy.op_type = "Identity";
      copy.opset = 13;
      copy.origin = node_.origin;
      copy.inputs = {g};
      copy.outputs = {node_.outputs[i]};
      out_.push_back(std::move(copy));
    }
  }

private:
  /// The value that stands for `v` at the point where the gradient is taken.
  ValueId at(ValueId v) const {
    auto it = here_.find(v);
    return it == here_.end() ? v : it->second;
  }

  /// Nodes between the sources and y, in order.
  void collect(ValueId y, const std::vector<ValueId>& sources) {
    std::set<ValueId> stop(sources.begin(), sources.end()), wanted{y};
    for (size_t i = done_.size(); i-- > 0;) {
      const Node& n = done_[i];
      bool used = std::any_of(n.outputs.begin(), n.outputs.end(),
                              [&](ValueId v) { return v >= 0 && wanted.count(v) && !stop.count(v); });
      if (!used) continue;
      forward_.push_back(n);
      for_each_read(n, [&](ValueId v) {
        if (!stop.count(v)) wanted.insert(v);
      });
    }
    std::reverse(forward_.begin(), forward_.end());
  }

  /// Where the node's inputs are not the named tensors themselves, what depends on them is computed anew.
  void clone_forward() {
    for (Node& n : forward_) {
      bool moved = false;
      for_each_read(n, [&](ValueId v) { moved = moved || at(v) != v; });
      if (!moved) continue;
      for (ValueId& v : n.inputs)
        if (v >= 0) v = at(v);
      own_bodies(n);
      for_each_capture(n, [&](Graph::Capture& c) { c.outer = at(c.outer); });
      for (ValueId& v : n.outputs) {
        if (v < 0) continue;
        Value copy = g_.at(v);
        copy.constant = nullptr;
        auto fresh = static_cast<ValueId>(g_.values.size());
        g_.values.push_back(std::move(copy));
        here_[v] = fresh;
        v = fresh;
      }
      out_.push_back(n);
    }
  }

  Graph& g_;
  std::span<const Node> done_;
  const Node& node_;
  std::vector<Node>& out_;
  std::vector<Node> forward_;
  std::map<ValueId, ValueId> here_;
};

/// Operators before node `end`, a Gradient, that lie between its sources and its y and whose bodies can be
/// differentiated while they cannot give way to them. Returns where the node is then.
size_t open_bodies(Graph& g, size_t end) {
  std::set<ValueId> wanted{named(g, attribute<std::string>(g.nodes[end], "y"))}, sources;
  for (const char* list : {"xs", "zs"})
    for (const std::string& name : attribute<std::vector<std::string>>(g.nodes[end], list))
      sources.insert(named(g, name));
  for (size_t i = end; i-- > 0;) {
    const Node& n = g.nodes[i];
    if (std::none_of(n.outputs.begin(), n.outputs.end(),
                     [&](ValueId v) { return wanted.count(v) != 0 && sources.count(v) == 0; }))
      continue;
    const size_t before = g.nodes.size();
    if (open_body(g, i)) {
      const size_t more = g.nodes.size() - before; // one node became several, or none: wraps around
      end += more;
      i += more + 1;
      continue;
    }
    for_each_read(n, [&](ValueId v) { wanted.insert(v); });
  }
  return end;
}

/// The nodes that compute what node `i` asks for.
std::vector<Node> derivatives(Graph& graph, size_t i) {
  std::vector<Node> made;
  const Node node = graph.nodes[i];
  Differentiator(graph, std::span(graph.nodes).first(i), node, made).run();
  return made;
}

/// Node `i`, a Gradient, may stand before the node that computes its y, which is no input of it: it goes
/// behind that one, with what reads its results. False where it can stay.
bool move_behind_y(Graph& g, size_t i) {
  const ValueId y = named(g, attribute<std::string>(g.nodes[i], "y"));
  size_t end = i + 1;
  while (end < g.nodes.size() && std::count(g.nodes[end].outputs.begin(), g.nodes[end].outputs.end(), y) == 0)
    ++end;
  if (end == g.nodes.size()) return false;
  ++end;
  std::set<ValueId> results;
  std::vector<Node> before, behind;
  for (size_t k = i; k < end; ++k) {
    Node& n = g.nodes[k];
    const bool later = k == i || reads_any(n, results);
    if (later) results.insert(n.outputs.begin(), n.outputs.end());
    results.erase(-1); // outputs left out
    (later ? behind : before).push_back(std::move(n));
  }
  auto to = std::move(before.begin(), before.end(), g.nodes.begin() + static_cast<std::ptrdiff_t>(i));
  std::move(behind.begin(), behind.end(), to);
  set_producers(g);
  TBX_MODEL(results.count(y) == 0, "{} depends on its own gradient", shown(g.at(y).name));
  return true;
}

} // namespace

void expand_gradients(Graph& graph) {
  size_t moves = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!is_gradient(graph.nodes[i])) continue;
    const std::string where = describe(graph, graph.nodes[i]);
    try {
      if (move_behind_y(graph, i)) {
        TBX_MODEL(++moves <= graph.nodes.size(), "gradients that need each other");
        --i; // another node is here now
        continue;
      }
      i = open_bodies(graph, i);
      std::vector<Node> made = derivatives(graph, i);
      auto at = graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(i));
      graph.nodes.insert(at, std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
      i += made.size();
      --i;
    } catch (Error& e) {
      e.set_where(where);
      throw;
    }
    set_producers(graph);
  }
}

} // namespace tbx::graph
