#include "graph/differentiate/reverse.h"

#include "graph/differentiate/recurrent_body.h"
#include "graph/function_body.h"
#include "lowering/op_registry.h"

namespace tbx::graph {

bool reads_any(const Node& n, const std::set<ValueId>& values) {
  bool any = false;
  for_each_read(n, [&](ValueId v) { any = any || values.count(v) != 0; });
  return any;
}

void own_bodies(Node& n) {
  for (auto& [name, attribute] : n.attributes)
    if (auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) *body = std::make_shared<Graph>(**body);
}

bool open_body(Graph& g, size_t i) {
  const Node& n = g.nodes[i];
  if (!n.domain.empty()) return false;
  if (auto body = recurrent_body(n, g)) return inline_function(g, i, *body);
  return has(lowering::Trait::by_body, n) && inline_function(g, i);
}

bool may_vary(const ValueType& type) {
  return type.kind != ValueType::tensor || type.dtype == DType::undefined || is_float(type.dtype);
}

Reverse::Reverse(Graph& g, std::vector<Node>& out, int origin, std::vector<Node> forward)
    : b(g, out, origin), g_(g), forward_(std::move(forward)) {}

void Reverse::vary(const std::vector<ValueId>& xs) {
  const auto& registry = lowering::Registry::instance();
  dependent_.insert(xs.begin(), xs.end());
  for (const Node& n : forward_) {
    if (registry.has(lowering::Trait::no_gradient, n) || !reads_any(n, dependent_)) continue;
    for (ValueId v : n.outputs)
      if (v >= 0 && may_vary(g_.at(v).type)) dependent_.insert(v);
  }
}

void Reverse::give(ValueId v, ValueId g) {
  if (!varies(v)) return;
  auto [it, fresh] = gradient_.emplace(v, g);
  if (!fresh) it->second = b.emit("Add", {it->second, g}, v);
}

ValueId Reverse::gradient(ValueId v) const {
  auto it = gradient_.find(v);
  return it == gradient_.end() ? -1 : it->second;
}

void Reverse::run() {
  for (size_t i = forward_.size(); i-- > 0;) {
    const Node& n = forward_[i];
    RuleCall call{b, n, {}, [&](ValueId v, ValueId g) { give(v, g); }, [&](ValueId v) { return varies(v); }};
    bool any = false, beyond_first = false;
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      const ValueId g = n.outputs[k] < 0 || !varies(n.outputs[k]) ? -1 : gradient(n.outputs[k]);
      call.gradients.push_back(g);
      any = any || g >= 0;
      beyond_first = beyond_first || (k > 0 && g >= 0);
    }
    if (!any) continue;
    Rule rule = n.domain.empty() ? find_rule(n.op_type) : nullptr;
    if (!rule || (beyond_first && !takes_all_gradients(n.op_type))) rule = derivative_rule;
    rule(call);
  }
}

} // namespace tbx::graph
