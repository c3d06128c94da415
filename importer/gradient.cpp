#include "importer/gradient.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/error.h"
#include "importer/function_body.h"
#include "importer/gradient_rules.h"
#include "importer/names.h"

namespace tbx::importer {
namespace {

bool is_gradient(const Node& n) { return n.domain == "ai.onnx.preview.training" && n.op_type == "Gradient"; }

ValueId named(const Graph& g, const std::string& name) {
  for (size_t v = 0; v < g.values.size(); ++v)
    if (g.values[v].name == name) return static_cast<ValueId>(v);
  throw_model_error("there is no tensor {} to differentiate", shown(name));
}

template <class T> T attribute(const Node& node, const char* name) {
  auto it = node.attributes.find(name);
  if (it == node.attributes.end()) return {};
  const T* value = std::get_if<T>(&it->second);
  TBX_MODEL(value != nullptr, "attribute '{}' has the wrong type", name);
  return *value;
}

/// Differentiates for one Gradient node; `done` are the nodes before it.
class Differentiator {
public:
  Differentiator(Graph& g, std::span<const Node> done, const Node& node, std::vector<Node>& out)
      : g_(g), done_(done), node_(node), out_(out), b_(g, out, node.origin) {}

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
    mark_dependent({sources.begin(), sources.begin() + static_cast<std::ptrdiff_t>(xs.size())});
    gradient_[at(y)] = b_.filled(at(y), 1);
    backward();
    for (size_t i = 0; i < node_.outputs.size(); ++i) {
      if (node_.outputs[i] < 0) continue;
      auto it = gradient_.find(node_.inputs[i]);
      ValueId g = it == gradient_.end() ? b_.filled(node_.inputs[i], 0) : it->second;
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
      for (ValueId v : n.inputs)
        if (v >= 0 && !stop.count(v)) wanted.insert(v);
    }
    std::reverse(forward_.begin(), forward_.end());
  }

  /// Where the node's inputs are not the named tensors themselves, what depends on them is computed anew.
  void clone_forward() {
    for (Node& n : forward_) {
      bool moved =
          std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return v >= 0 && at(v) != v; });
      if (!moved) continue;
      for (ValueId& v : n.inputs)
        if (v >= 0) v = at(v);
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

  void mark_dependent(const std::vector<ValueId>& xs) {
    for (ValueId x : xs) dependent_.insert(at(x));
    for (const Node& n : forward_) {
      if (n.domain.empty() && stops_gradient(n.op_type)) continue;
      bool any =
          std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return dependent_.count(v) != 0; });
      for (ValueId v : n.outputs)
        if (any && v >= 0) dependent_.insert(v);
    }
  }

  void backward() {
    for (size_t i = forward_.size(); i-- > 0;) {
      const Node& n = forward_[i];
      std::vector<ValueId> gradients;
      bool any = false;
      for (size_t k = 0; k < n.outputs.size(); ++k) {
        auto g = n.outputs[k] < 0 ? gradient_.end() : gradient_.find(n.outputs[k]);
        const bool given = g != gradient_.end() && dependent_.count(n.outputs[k]);
        gradients.push_back(given ? g->second : -1);
        any = any || given;
        if (k > 0 && given && !(n.domain.empty() && takes_all_gradients(n.op_type)))
          throw_unsupported("the gradient through output {} of {}", k, describe(g_, n));
      }
      if (!any) continue;
      Rule rule = n.domain.empty() ? find_rule(n.op_type) : nullptr;
      if (!rule) throw_unsupported("there is no rule to differentiate {}", describe(g_, n));
      auto needs = [&](int k) {
        return k < static_cast<int>(n.inputs.size()) && n.inputs[k] >= 0 &&
               dependent_.count(n.inputs[k]) != 0;
      };
      rule({b_, n, std::move(gradients),
            [&](int k, ValueId part) {
              if (!needs(k)) return;
              auto [it, fresh] = gradient_.emplace(n.inputs[k], part);
              if (!fresh) it->second = b_.emit("Add", {it->second, part}, n.inputs[k]);
            },
            needs});
    }
  }

  Graph& g_;
  std::span<const Node> done_;
  const Node& node_;
  std::vector<Node>& out_;
  GradientBuilder b_;
  std::vector<Node> forward_;
  std::map<ValueId, ValueId> here_, gradient_;
  std::set<ValueId> dependent_;
};

/// Operators before node `end`, a Gradient, that have no rule and lie between its sources and its y give way
/// to the bodies that ONNX defines for them. Returns where the node is then.
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
    const bool known = n.domain.empty() && (find_rule(n.op_type) || stops_gradient(n.op_type));
    const size_t before = g.nodes.size();
    if (!known && inline_function(g, i)) {
      const size_t more = g.nodes.size() - before; // one node became several, or none: wraps around
      end += more;
      i += more + 1;
      continue;
    }
    for (ValueId v : n.inputs)
      if (v >= 0) wanted.insert(v);
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

bool reads(const Node& n, const std::set<ValueId>& values) {
  bool any = std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) { return values.count(v) != 0; });
  for_each_capture(n, [&](const Graph::Capture& c) { any = any || values.count(c.outer) != 0; });
  return any;
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
    const bool later = k == i || reads(n, results);
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

} // namespace tbx::importer
