#include "importer/functions.h"

#include <algorithm>
#include <vector>

#include "base/budget.h"
#include "base/error.h"
#include "graph/names.h"

namespace tbx::importer {
namespace {

template <class Proto> std::string id_of(const Proto& p, const std::string& name) {
  // '\0' cannot be confused with a part of a name: names with it are other names, not other splits.
  std::string id(canonical_domain(p.domain()));
  return id + '\0' + std::to_string(name.size()) + name + p.overload();
}

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/// Calls fn on every node of `nodes` and of all subgraphs below them, without recursion.
template <class Fn>
void for_each_node(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, Fn fn) {
  std::vector<const google::protobuf::RepeatedPtrField<onnx::NodeProto>*> pending{&nodes};
  while (!pending.empty()) {
    const auto* list = pending.back();
    pending.pop_back();
    for (const onnx::NodeProto& node : *list) {
      fn(node);
      for (const onnx::AttributeProto& attribute : node.attribute()) {
        if (attribute.has_g()) pending.push_back(&attribute.g().node());
        for (const onnx::GraphProto& graph : attribute.graphs()) pending.push_back(&graph.node());
      }
    }
  }
}

} // namespace

OpsetImports read_opset_imports(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports,
                                const std::string& what) {
  OpsetImports result;
  for (auto import = imports.rbegin(); import != imports.rend(); ++import) {
    std::string domain(canonical_domain(import->domain()));
    if (result.contains(domain))
      continue; // the last of several counts, as in onnx.reference and ONNX Runtime
    TBX_MODEL(import->version() > 0 && import->version() < 1'000'000,
              "{} imports version {} of the operator set {}", what, import->version(),
              shown(shown_domain(domain)));
    result.emplace(std::move(domain), static_cast<int>(import->version()));
  }
  return result;
}

Functions::Functions(onnx::ModelProto& model, const ImportOptions& options) {
  for (onnx::FunctionProto& proto : *model.mutable_functions()) {
    Function f;
    f.proto = &proto;
    f.label = shown(proto.domain() + ":" + proto.name());
    TBX_MODEL(!proto.name().empty(), "a function of the domain {} has no name", shown(proto.domain()));
    f.opsets = read_opset_imports(proto.opset_import(), "function " + f.label);
    std::string label = f.label;
    bool added = by_id_.emplace(id_of(proto, proto.name()), std::move(f)).second;
    TBX_MODEL(added, "function {} is defined twice", label);
  }

  // Depth-first over calls with a stack of our own; sizes and depths are known when a function is left.
  enum State { fresh, open, done };
  struct Facts {
    State state = fresh;
    std::vector<Function*> callees;
    int64_t own_nodes = 0;
  };
  std::unordered_map<Function*, Facts> facts;
  auto enter = [&](Function* f) -> Facts& {
    Facts& x = facts[f];
    x.state = open;
    for_each_node(f->proto->node(), [&](const onnx::NodeProto& node) {
      if (auto* callee = const_cast<Function*>(find(node)))
        x.callees.push_back(callee);
      else
        ++x.own_nodes;
    });
    return x;
  };
  struct Frame {
    Function* f;
    size_t next = 0;
  };
  for (auto& [id, root] : by_id_) {
    if (facts[&root].state == done) continue;
    std::vector<Frame> stack{{&root}};
    enter(&root);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      Facts& x = facts[frame.f];
      if (frame.next < x.callees.size()) {
        Function* callee = x.callees[frame.next++];
        State state = facts[callee].state;
        if (state == open) {
          std::string chain;
          auto from = std::find_if(stack.begin(), stack.end(), [&](const Frame& s) { return s.f == callee; });
          for (auto it = from; it != stack.end() && it - from < 8; ++it) chain += it->f->label + " -> ";
          throw_model_error("functions call themselves, which ONNX forbids: {}{}", chain, callee->label);
        }
        if (state == fresh) {
          enter(callee);
          stack.push_back({callee});
        }
        continue;
      }
      x.state = done;
      frame.f->total_nodes = x.own_nodes;
      for (Function* callee : x.callees) {
        frame.f->total_nodes = saturating_add(frame.f->total_nodes, callee->total_nodes);
        frame.f->depth = std::max(frame.f->depth, callee->depth);
      }
      ++frame.f->depth;
      if (frame.f->depth > options.max_nesting)
        throw Error(ErrorKind::model,
                    fmt::format("function {} calls others {} levels deep, over the limit of {}",
                                frame.f->label, frame.f->depth, options.max_nesting),
                    how_to_raise("max_nesting"));
      stack.pop_back();
    }
  }

  int64_t total = 0;
  for_each_node(model.graph().node(), [&](const onnx::NodeProto& node) {
    if (const Function* f = find(node)) total = saturating_add(total, f->total_nodes);
  });
  if (total > options.max_nodes)
    throw Error(ErrorKind::model,
                fmt::format("the functions of the model expand to {} nodes, over the limit of {}",
                            total == INT64_MAX ? "more than 2^63" : std::to_string(total), options.max_nodes),
                how_to_raise("max_nodes"));
}

const Functions::Function* Functions::find(const onnx::NodeProto& node) const {
  if (by_id_.empty()) return nullptr;
  auto it = by_id_.find(id_of(node, node.op_type()));
  return it == by_id_.end() ? nullptr : &it->second;
}

} // namespace tbx::importer
