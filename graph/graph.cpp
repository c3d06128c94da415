#include "graph/graph.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "graph/names.h"
#include "ir/symint.h"

namespace tbx {
namespace {

std::string text_of(const ValueType& type) {
  std::string element = type.element ? text_of(*type.element) : "?";
  switch (type.kind) {
  case ValueType::tensor:
  case ValueType::sparse_tensor: {
    std::string text(type.kind == ValueType::sparse_tensor ? "sparse " : "");
    text += name_of(type.dtype);
    return text + (type.shape ? ir::to_string(*type.shape) : "[?]");
  }
  case ValueType::sequence: return "sequence(" + element + ")";
  case ValueType::optional: return "optional(" + element + ")";
  case ValueType::map: return fmt::format("map({}, {})", name_of(type.dtype), element);
  case ValueType::unknown: return "?";
  }
  return "?";
}

/// Type and shape, and the values where they are few.
std::string text_of(const Tensor& t) {
  constexpr int64_t kMaxShown = 8;
  std::string text = fmt::format("{}[{}]", name_of(t.dtype), fmt::join(t.dims, ", "));
  if (t.numel() > kMaxShown || is_complex(t.dtype)) return text;
  std::vector<std::string> elements;
  for (int64_t i = 0; i < t.numel(); ++i)
    elements.push_back(t.dtype == DType::string ? shown((*t.strings)[i])
                       : is_float(t.dtype)      ? fmt::format("{:g}", element_as_double(t, i))
                                                : std::to_string(element_as_int(t, i)));
  return text + fmt::format(" {{{}}}", fmt::join(elements, ", "));
}

class Printer {
public:
  std::string text;

  void print(const Graph& g, const std::string& indent) {
    line(indent, "graph {}", shown(g.name));
    for (const auto& [domain, version] : g.opset_imports)
      line(indent, "  opset {} {}", shown(shown_domain(domain)), version);
    for (ValueId id : g.inputs) line(indent, "  input {}", definition(g, id));
    for (const auto& c : g.captures)
      line(indent, "  capture {} = outer %{}", definition(g, c.inner), c.outer);
    for (size_t i = 0; i < g.values.size(); ++i)
      if (const auto& v = g.values[i]; v.constant && v.producer < 0)
        line(indent, "  constant %{} {} {}", i, shown(v.name), text_of(*v.constant));
    for (const Node& n : g.nodes) print(g, n, indent + "  ");
    for (ValueId id : g.outputs) line(indent, "  output %{} {}", id, id < 0 ? "" : shown(g.at(id).name));
  }

private:
  template <class... A> void line(const std::string& indent, fmt::format_string<A...> f, A&&... a) {
    text += indent + fmt::format(f, std::forward<A>(a)...) + "\n";
  }

  static std::string definition(const Graph& g, ValueId id) {
    if (id < 0) return "-";
    const DType stored = g.at(id).stored;
    return fmt::format("%{} {} {}{}", id, shown(g.at(id).name), text_of(g.at(id).type),
                       stored == DType::undefined ? "" : fmt::format(" stored as {}", name_of(stored)));
  }

  void print(const Graph& g, const Node& n, const std::string& indent) {
    std::vector<std::string> outputs, inputs, attributes;
    for (ValueId id : n.outputs) outputs.push_back(definition(g, id));
    for (ValueId id : n.inputs) inputs.push_back(id < 0 ? "-" : "%" + std::to_string(id));
    for (const auto& [name, value] : n.attributes)
      attributes.push_back(" " + shown(name) + "=" + attribute_text(value));
    line(indent, "{} = {}{}-{}({}){}{}", fmt::join(outputs, ", "), n.domain.empty() ? "" : n.domain + ".",
         n.op_type, n.opset, fmt::join(inputs, ", "), fmt::join(attributes, ""),
         n.name.empty() ? "" : " # " + shown(n.name));
    for_each_body(n, [&](const Graph& body) { print(body, indent + "    "); });
  }

  static std::string attribute_text(const Attribute& attribute) {
    struct Visitor {
      std::string operator()(int64_t v) { return std::to_string(v); }
      std::string operator()(float v) { return fmt::format("{:g}f", v); }
      std::string operator()(const std::string& v) { return shown(v); }
      std::string operator()(const std::shared_ptr<const Tensor>& v) { return tbx::text_of(*v); }
      std::string operator()(const std::shared_ptr<Graph>& v) { return "graph " + shown(v->name); }
      std::string operator()(const std::vector<int64_t>& v) {
        return fmt::format("[{}]", fmt::join(v, ", "));
      }
      std::string operator()(const std::vector<float>& v) {
        return fmt::format("[{:g}]", fmt::join(v, ", "));
      }
      std::string operator()(const std::vector<std::string>& v) {
        std::vector<std::string> parts;
        parts.reserve(v.size());
        for (const auto& s : v) parts.push_back(shown(s));
        return fmt::format("[{}]", fmt::join(parts, ", "));
      }
      std::string operator()(const std::vector<std::shared_ptr<const Tensor>>& v) {
        return fmt::format("[{} tensors]", v.size());
      }
      std::string operator()(const std::vector<std::shared_ptr<Graph>>& v) {
        return fmt::format("[{} graphs]", v.size());
      }
      std::string operator()(const ValueType& v) { return tbx::text_of(v); }
    };
    return std::visit(Visitor{}, attribute);
  }
};

class Verifier {
public:
  void verify(const Graph& g, const Graph* outer) {
    const auto num_values = static_cast<ValueId>(g.values.size());
    const auto num_nodes = static_cast<int>(g.nodes.size());
    auto exists = [&](ValueId id) { return id >= 0 && id < num_values; };
    TBX_INTERNAL(g.context != nullptr);

    std::vector<bool> defined(g.values.size());
    auto define = [&](ValueId id) {
      TBX_INTERNAL(exists(id));
      TBX_INTERNAL(!defined[id]); // one producer
      defined[id] = true;
    };
    for (ValueId id : g.inputs)
      if (id >= 0) define(id); // a function body leaves out what its caller does
    for (const auto& c : g.captures) {
      TBX_INTERNAL(outer && c.outer >= 0 && c.outer < static_cast<ValueId>(outer->values.size()));
      define(c.inner);
    }
    for (ValueId id = 0; id < num_values; ++id) {
      TBX_INTERNAL(g.at(id).producer >= -1 && g.at(id).producer < num_nodes);
      if (g.at(id).producer < 0 && g.at(id).constant && !defined[id]) defined[id] = true;
    }
    for (int i = 0; i < num_nodes; ++i) {
      const Node& n = g.nodes[i];
      for (ValueId id : n.inputs) TBX_INTERNAL(id == -1 || (exists(id) && defined[id])); // topological order
      for_each_body(n, [&](const Graph& body) { verify_subgraph(body, g, defined); });
      for (ValueId id : n.outputs) {
        if (id == -1) continue;
        define(id);
        TBX_INTERNAL(g.at(id).producer == i);
      }
    }
    for (ValueId id : g.outputs) TBX_INTERNAL(id == -1 || (exists(id) && defined[id]));
  }

private:
  void verify_subgraph(const Graph& g, const Graph& outer, const std::vector<bool>& defined) {
    TBX_INTERNAL(g.context == outer.context);
    for (const auto& c : g.captures)
      TBX_INTERNAL(c.outer >= 0 && c.outer < static_cast<ValueId>(defined.size()) && defined[c.outer]);
    verify(g, &outer);
  }
};

} // namespace

std::vector<char> live_nodes(const Graph& graph) {
  std::vector<char> needed(graph.values.size(), 0), live(graph.nodes.size(), 0);
  auto need = [&](ValueId id) {
    if (id >= 0) needed[id] = 1;
  };
  for (ValueId id : graph.outputs) need(id);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    for (ValueId id : node.outputs) live[i] |= id >= 0 && needed[id] && !graph.at(id).constant;
    if (!live[i]) continue;
    for (ValueId id : node.inputs) need(id);
    for_each_capture(node, [&](const Graph::Capture& capture) { need(capture.outer); });
  }
  return live;
}

void keep_signature(Graph& graph) {
  graph.nodes.clear();
  for (Value& v : graph.values) {
    v.constant.reset();
    v.producer = -1;
  }
}

void set_producers(Graph& graph) {
  for (Value& v : graph.values) v.producer = -1;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (ValueId id : graph.nodes[i].outputs)
      if (id >= 0) graph.at(id).producer = static_cast<int>(i);
}

std::string type_text(const ValueType& type) {
  std::string element = type.element ? type_text(*type.element) : "?";
  switch (type.kind) {
  case ValueType::tensor: return fmt::format("tensor({})", name_of(type.dtype));
  case ValueType::sparse_tensor: return fmt::format("sparse_tensor({})", name_of(type.dtype));
  case ValueType::sequence: return "sequence(" + element + ")";
  case ValueType::optional: return "optional(" + element + ")";
  case ValueType::map: return fmt::format("map({}, {})", name_of(type.dtype), element);
  case ValueType::unknown: return "?";
  }
  return "?";
}

std::string describe(const Graph& graph, const Node& node) {
  std::string_view label = node.name;
  for (size_t i = 0; label.empty() && i < node.outputs.size(); ++i)
    if (node.outputs[i] >= 0) label = graph.at(node.outputs[i]).name;
  return node_text(label, node.domain, node.op_type, std::to_string(node.opset));
}

int64_t declared_size(const Graph& body, size_t output, size_t dim, size_t rank) {
  if (output >= body.declared_sizes.size()) return -1;
  const std::vector<int64_t>& sizes = body.declared_sizes[output];
  return sizes.size() == rank ? sizes[dim] : -1;
}

std::vector<int64_t> dims_of_loop_number(const Graph& body, size_t input) {
  const ValueId v = body.inputs.at(input);
  const bool one = v >= 0 && body.at(v).type.shape && body.at(v).type.shape->size() == 1;
  return std::vector<int64_t>(one ? 1 : 0, 1);
}

std::string to_string(const Graph& graph) {
  Printer printer;
  printer.print(graph, "");
  return std::move(printer.text);
}

void verify(const Graph& graph) { Verifier().verify(graph, nullptr); }

} // namespace tbx
