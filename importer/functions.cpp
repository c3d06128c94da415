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

/// Finds the sizes and depths of functions: depth-first over their calls, with a stack of its own.
class CallWalk {
public:
  CallWalk(const Functions& functions, int max_depth) : functions_(functions), max_depth_(max_depth) {}

  /// Of this function and of all that it calls. ModelError where it calls itself, or too deep.
  void measure(Functions::Function& root) {
    if (calls_[&root].state == State::done) return;
    enter(root);
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      Calls& calls = calls_[frame.function];
      if (frame.next == calls.callees.size()) {
        leave(*frame.function, calls);
        stack_.pop_back();
        continue;
      }
      Functions::Function& callee = *calls.callees[frame.next++];
      const State state = calls_[&callee].state;
      if (state == State::open) throw_circle(callee);
      if (state == State::fresh) enter(callee);
    }
  }

private:
  enum class State : uint8_t { fresh, open, done };
  struct Calls {
    State state = State::fresh;
    std::vector<Functions::Function*> callees;
    int64_t own_nodes = 0;
  };
  struct Frame {
    Functions::Function* function;
    size_t next = 0; ///< of its callees
  };

  void enter(Functions::Function& function) {
    Calls& calls = calls_[&function];
    calls.state = State::open;
    for_each_node(function.proto->node(), [&](const onnx::NodeProto& node) {
      if (auto* callee = const_cast<Functions::Function*>(functions_.find(node)))
        calls.callees.push_back(callee);
      else
        ++calls.own_nodes;
    });
    stack_.push_back({&function});
  }

  void leave(Functions::Function& function, Calls& calls) const {
    calls.state = State::done;
    function.total_nodes = calls.own_nodes;
    for (const Functions::Function* callee : calls.callees) {
      function.total_nodes = saturating_add(function.total_nodes, callee->total_nodes);
      function.depth = std::max(function.depth, callee->depth);
    }
    if (++function.depth > max_depth_)
      throw Error(ErrorKind::model,
                  fmt::format("function {} calls others {} levels deep, over the limit of {}", function.label,
                              function.depth, max_depth_),
                  how_to_raise("max_nesting"));
  }

  [[noreturn]] void throw_circle(const Functions::Function& callee) const {
    constexpr int kShown = 8; // functions of the circle
    std::string chain;
    auto from = std::find_if(stack_.begin(), stack_.end(),
                             [&](const Frame& frame) { return frame.function == &callee; });
    for (auto it = from; it != stack_.end() && it - from < kShown; ++it)
      chain += it->function->label + " -> ";
    throw_model_error("functions call themselves, which ONNX forbids: {}{}", chain, callee.label);
  }

  const Functions& functions_;
  const int max_depth_;
  std::unordered_map<const Functions::Function*, Calls> calls_;
  std::vector<Frame> stack_;
};

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
  CallWalk walk(*this, options.max_nesting);
  for (auto& [id, function] : by_id_) walk.measure(function);

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
