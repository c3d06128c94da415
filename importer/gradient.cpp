#include "importer/gradient.h"

#include <algorithm>
#include <set>

#include "base/error.h"
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
  Differentiator(Graph& g, const std::vector<Node>& done, const Node& node, std::vector<Node>& out)
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
      for (size_t k = 1; k < n.outputs.size(); ++k)
        if (n.outputs[k] >= 0 && gradient_.count(n.outputs[k]))
          throw_unsupported("the gradient through output {} of {}", k, describe(g_, n));
      auto g = n.outputs.empty() ? gradient_.end() : gradient_.find(n.outputs[0]);
      if (g == gradient_.end() || !dependent_.count(n.outputs[0])) continue;
      Rule rule = n.domain.empty() ? find_rule(n.op_type) : nullptr;
      if (!rule) throw_unsupported("there is no rule to differentiate {}", describe(g_, n));
      auto needs = [&](int k) {
        return k < static_cast<int>(n.inputs.size()) && n.inputs[k] >= 0 &&
               dependent_.count(n.inputs[k]) != 0;
      };
      rule({b_, n, g->second,
            [&](int k, ValueId part) {
              if (!needs(k)) return;
              auto [it, fresh] = gradient_.emplace(n.inputs[k], part);
              if (!fresh) it->second = b_.emit("Add", {it->second, part}, n.inputs[k]);
            },
            needs});
    }
  }

  Graph& g_;
  const std::vector<Node>& done_;
  const Node& node_;
  std::vector<Node>& out_;
  GradientBuilder b_;
  std::vector<Node> forward_;
  std::map<ValueId, ValueId> here_, gradient_;
  std::set<ValueId> dependent_;
};

} // namespace

void expand_gradients(Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_gradient)) return;
  std::vector<Node> done;
  for (Node& node : graph.nodes) {
    if (!is_gradient(node)) {
      done.push_back(std::move(node));
      continue;
    }
    std::vector<Node> made;
    try {
      Differentiator(graph, done, node, made).run();
    } catch (Error& e) {
      e.set_where(describe(graph, node));
      throw;
    }
    std::move(made.begin(), made.end(), std::back_inserter(done));
  }
  graph.nodes = std::move(done);
  set_producers(graph);
}

} // namespace tbx::importer
