#include "lowering/begun.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "graph/function_body.h"
#include "lowering/op_registry.h"

namespace tbx::lowering {
namespace {

/// Graph inputs and captures from which the elements of `values` are computed.
std::vector<ValueId> sources_of(const Graph& g, std::vector<ValueId> values) {
  std::set<ValueId> seen(values.begin(), values.end());
  std::vector<ValueId> sources;
  while (!values.empty()) {
    ValueId v = values.back();
    values.pop_back();
    if (g.at(v).constant) continue;
    if (g.at(v).producer < 0) {
      sources.push_back(v);
      continue;
    }
    const Node& node = g.nodes[g.at(v).producer];
    if (has(Trait::reads_shape, node)) continue;
    auto follow = [&](ValueId in) {
      if (in >= 0 && seen.insert(in).second) values.push_back(in);
    };
    for (ValueId in : node.inputs) follow(in);
    for_each_capture(node, [&](const Graph::Capture& capture) { follow(capture.outer); });
  }
  return sources;
}

bool is_known_operator(const Node& node) {
  return node.custom || Registry::instance().find(node.domain, node.op_type, node.opset) ||
         has_function_body(node);
}

} // namespace

void Begun::say_where(Error& e) const {
  for (size_t k = nodes_.size(); k-- > 0;) e.add_where(describe(nodes_[k].graph, nodes_[k].node));
}

Error Begun::refusal_of(const ir::TypeError& e) const {
  auto has_schema = [](const Node& n) {
    return schema_since_version(n.domain, n.op_type, n.opset).has_value();
  };
  std::vector<std::string_view> types;
  if (!nodes_.empty() && !has_schema(nodes_.back().node))
    for (DType t : nodes_.back().types) types.push_back(t == DType::undefined ? "-" : name_of(t));
  Error error = types.empty()
                    ? Error(ErrorKind::internal, e.what())
                    : Error(ErrorKind::model, fmt::format("the operator does not take inputs of types {}: {}",
                                                          fmt::join(types, ", "), e.what()));
  say_where(error);
  return error;
}

bool Begun::is_refused_for_sizes() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const One& b) { return b.has_dynamic_sizes && is_known_operator(b.node); });
}

Demand Begun::demand(const Asked& asked) const {
  Demand d{asked.kind, asked.reason, -1, {}, {}, {}};
  say_where(d.reason);
  if (nodes_.empty()) return d;
  const One& outermost = nodes_.front();
  d.node = static_cast<int>(&outermost.node - outermost.graph.nodes.data());
  if (asked.kind != Demand::Kind::elements) return d;
  std::vector<ValueId> values = asked.values, sources;
  for (size_t k = nodes_.size(); k-- > 0;) {
    const One& b = nodes_[k];
    if (k + 1 < nodes_.size()) {
      // Of a body: its captures stand for themselves, its inputs for all inputs of the node.
      values.clear();
      for (ValueId v : sources)
        for (const Graph::Capture& capture : b.body->captures)
          if (capture.inner == v) values.push_back(capture.outer);
      values.insert(values.end(), b.node.inputs.begin(), b.node.inputs.end());
    }
    if (values.empty()) values = b.node.inputs;
    std::erase(values, -1);
    sources = sources_of(b.graph, values);
    if (!sources.empty()) continue;
    d.kind = Demand::Kind::shapes; // no element decides: the sizes of the inputs do
    if (k > 0) values.clear();
    break;
  }
  d.values = std::move(values);
  for (ValueId v : sources) d.inputs.push_back(outermost.graph.at(v).name);
  return d;
}

} // namespace tbx::lowering
