#include "graph/partition/graph_part.h"

#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "base/error.h"

namespace tbx::graph {

std::vector<ValueId> values_read(const Node& node) {
  std::vector<ValueId> read;
  for (ValueId v : node.inputs)
    if (v >= 0) read.push_back(v);
  for_each_capture(node, [&](const Graph::Capture& c) {
    if (c.outer >= 0) read.push_back(c.outer);
  });
  return read;
}

namespace {

/// Replaces the bodies of a node by copies whose captures are numbered anew.
void renumber_captures(Node& node, const std::unordered_map<ValueId, ValueId>& to) {
  auto copy = [&](std::shared_ptr<Graph>& body) {
    body = std::make_shared<Graph>(*body);
    for (Graph::Capture& c : body->captures) c.outer = to.at(c.outer);
  };
  for (auto& [name, value] : node.attributes) {
    if (auto* g = std::get_if<std::shared_ptr<Graph>>(&value)) copy(*g);
    if (auto* gs = std::get_if<std::vector<std::shared_ptr<Graph>>>(&value))
      for (auto& g : *gs) copy(g);
  }
}

} // namespace

Graph extract(const Graph& g, const std::vector<int>& nodes, const std::vector<ValueId>& inputs,
              const std::vector<ValueId>& outputs, std::vector<ValueId>& from) {
  Graph part;
  from.clear();
  part.name = g.name;
  part.context = g.context;
  part.origins = g.origins;
  part.opset_imports = g.opset_imports;
  std::unordered_map<ValueId, ValueId> to;
  auto add = [&](ValueId v) {
    if (v < 0) return -1;
    auto [it, fresh] = to.try_emplace(v, static_cast<ValueId>(part.values.size()));
    if (fresh) {
      part.values.push_back(g.at(v));
      from.push_back(v);
      part.values.back().producer = -1;
    }
    return it->second;
  };
  std::set<std::string> names;
  for (ValueId v : inputs) {
    ValueId id = add(v);
    std::string& name = part.at(id).name;
    if (!names.insert(name).second || name.empty()) {
      name += fmt::format("#{}", v);
      names.insert(name);
    }
    part.inputs.push_back(id);
  }
  for (int i : nodes) {
    Node node = g.nodes[i];
    for (ValueId& v : node.inputs) v = add(v);
    for (ValueId v : values_read(g.nodes[i])) add(v);
    renumber_captures(node, to);
    for (ValueId& v : node.outputs) {
      v = add(v);
      if (v >= 0) part.at(v).producer = static_cast<int>(part.nodes.size());
    }
    part.nodes.push_back(std::move(node));
  }
  for (ValueId v : outputs) part.outputs.push_back(add(v));
  return part;
}

bool declared_kinds(const Graph& g, std::vector<InputKind>& kinds) {
  std::unordered_map<const ir::SymNode*, int64_t> number;
  kinds.clear();
  for (ValueId v : g.inputs) {
    const ValueType& type = g.at(v).type;
    if (type.kind != ValueType::tensor || type.dtype == DType::undefined || !type.shape) return false;
    std::vector<int64_t> dims;
    for (ir::SymInt d : *type.shape) {
      if (d.is_constant()) {
        dims.push_back(d.constant());
        continue;
      }
      auto [it, fresh] = number.try_emplace(d.node(), static_cast<int64_t>(number.size()));
      dims.push_back(-1 - it->second);
    }
    kinds.push_back({type.dtype, std::move(dims)});
  }
  return true;
}

void narrow_inputs(const Graph& g, const std::vector<InputKind>& kinds) {
  for (size_t i = 0; i < kinds.size() && i < g.inputs.size(); ++i)
    for (int64_t axis : kinds[i].several) {
      const ir::SymInt size = g.at(g.inputs[i]).type.shape.value().at(static_cast<size_t>(axis));
      if (!size.is_constant()) g.context->symbol(size.node()->name, runtime::kLeastSize);
    }
}

namespace {

class Copier {
public:
  Copier(bool trust_shapes) : context_(std::make_shared<ir::Context>()), trust_(trust_shapes) {}

  Graph copy(const Graph& g) {
    Graph out = g;
    out.context = context_;
    for (Value& v : out.values) retype(v.type);
    for (Node& n : out.nodes)
      for (auto& [name, value] : n.attributes) {
        if (auto* body = std::get_if<std::shared_ptr<Graph>>(&value))
          *body = std::make_shared<Graph>(copy(**body));
        if (auto* bodies = std::get_if<std::vector<std::shared_ptr<Graph>>>(&value))
          for (auto& b : *bodies) b = std::make_shared<Graph>(copy(*b));
        if (auto* type = std::get_if<ValueType>(&value)) retype(*type);
      }
    return out;
  }

  void bind(ir::SymInt old, ir::SymInt fresh) { known_.emplace(old.node(), fresh); }
  ir::Context& context() { return *context_; }

private:
  void retype(ValueType& type) {
    if (type.shape && !trust_) type.shape.reset();
    if (type.shape)
      for (ir::SymInt& d : *type.shape) {
        if (d.is_constant()) continue;
        auto [it, fresh] = known_.try_emplace(d.node());
        if (fresh) it->second = context_->unbacked_symbol("u");
        d = it->second;
      }
    if (type.element) {
      auto element = std::make_shared<ValueType>(*type.element);
      retype(*element);
      type.element = std::move(element);
    }
  }

  std::shared_ptr<ir::Context> context_;
  bool trust_;
  std::unordered_map<const ir::SymNode*, ir::SymInt> known_;
};

} // namespace

Graph copy_with(const Graph& g, const std::vector<InputKind>& kinds, bool trust_shapes) {
  TBX_INTERNAL(kinds.size() == g.inputs.size());
  Copier copier(trust_shapes);
  std::vector<ValueType> types;
  for (size_t i = 0; i < kinds.size(); ++i) {
    ValueType t;
    t.kind = ValueType::tensor;
    t.dtype = kinds[i].dtype;
    TBX_INTERNAL(kinds[i].dims.has_value());
    t.shape.emplace();
    const ValueType& old = g.at(g.inputs[i]).type;
    for (size_t d = 0; d < kinds[i].dims->size(); ++d) {
      int64_t n = (*kinds[i].dims)[d];
      const bool several = std::count(kinds[i].several.begin(), kinds[i].several.end(), d) > 0;
      ir::SymInt size =
          n >= 0 ? ir::SymInt(n)
                 : copier.context().symbol(fmt::format("s{}", -1 - n), several ? runtime::kLeastSize : 0);
      if (trust_shapes && old.shape && d < old.shape->size() && !(*old.shape)[d].is_constant())
        copier.bind((*old.shape)[d], size);
      t.shape->push_back(size);
    }
    types.push_back(std::move(t));
  }
  Graph out = copier.copy(g);
  for (size_t i = 0; i < types.size(); ++i) out.at(out.inputs[i]).type = std::move(types[i]);
  return out;
}

} // namespace tbx::graph
