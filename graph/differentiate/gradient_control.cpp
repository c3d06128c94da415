// Gradients through control flow. An If: one of the branches' gradients. A Scan: a Scan over the same steps
// from the last to the first, on the states that each step began with, which a first run keeps. A Loop: the
// same, it has become a Scan once it is known how often it ran.
#include <algorithm>

#include "base/error.h"
#include "graph/differentiate/reverse.h"
#include "graph/node_attributes.h"

namespace tbx::graph {
namespace {

std::shared_ptr<Graph> body_of(const RuleCall& c, const char* name) {
  const auto* body = find_attribute<std::shared_ptr<Graph>>(c.node, name);
  TBX_MODEL(body != nullptr, "attribute '{}' is missing", name);
  return std::make_shared<Graph>(**body);
}

/// The value inside of `body` that stands for a value around it.
ValueId inside(Graph& body, const Graph& around, ValueId outer) {
  for (const Graph::Capture& c : body.captures)
    if (c.outer == outer) return c.inner;
  Value v = around.at(outer);
  v.producer = -1;
  v.constant = nullptr;
  auto inner = static_cast<ValueId>(body.values.size());
  body.values.push_back(std::move(v));
  body.captures.push_back({inner, outer});
  return inner;
}

ValueId add_value(Graph& g, std::string name, ValueType type) {
  g.values.push_back({std::move(name), std::move(type), -1, nullptr});
  return static_cast<ValueId>(g.values.size()) - 1;
}

ValueId add_like(Graph& g, const Value& like) {
  return add_value(g, fmt::format("{}'{}", like.name, g.values.size()), like.type);
}

/// A value of `body` of its own, which can be an output: an output is no input and stands there once.
ValueId own(GradientBuilder& b, ValueId v) { return b.emit("Identity", {v}, v); }

/// The values around the node that its bodies read and gradients are wanted of, each once.
std::vector<ValueId> varying_captures(const RuleCall& c) {
  std::vector<ValueId> found;
  for_each_capture(c.node, [&](const Graph::Capture& capture) {
    if (c.varies(capture.outer) && std::find(found.begin(), found.end(), capture.outer) == found.end())
      found.push_back(capture.outer);
  });
  return found;
}

/// Reverse mode over all of a body.
Reverse reverse_of(const RuleCall& c, Graph& body) {
  for (size_t i = 0; i < body.nodes.size();)
    if (!open_body(body, i)) ++i;
  return Reverse(body, body.nodes, c.node.origin, body.nodes);
}

ValueId gradient_or_zeros(Reverse& r, ValueId x) {
  const ValueId g = r.gradient(x);
  return g < 0 ? r.b.filled(x, 0) : own(r.b, g);
}

/// One iteration of a Scan or Loop: what the body's inputs and outputs are.
struct Steps {
  std::shared_ptr<Graph> body;
  struct Slice {
    size_t place;  ///< which input or output of the body
    ValueId outer; ///< the tensor of slices; of an output its gradient
    int64_t axis, direction;
    ValueId source = -1; ///< whose gradient the gradients of the slices make
  };
  struct State {
    size_t in, out;   ///< places in the body
    ValueId source;   ///< the initial value
    ValueId last;     ///< the final value, -1 where nobody has it
    ValueId gradient; ///< of the final value, -1: none
  };
  std::vector<State> states;
  std::vector<Slice> inputs, outputs;
};

/// The Scan that goes back. Its states: the gradients of the states, then those of captured values, summed.
class BackwardScan {
public:
  BackwardScan(const RuleCall& c, const Steps& s)
      : c_(c), s_(s), body_(*s.body), body_inputs_(body_.inputs), body_outputs_(body_.outputs),
        captured_(varying_captures(c)), reverse_(reverse_of(c, body_)) {
    node_.name = c.node.name;
    node_.op_type = "Scan";
    node_.opset = 18;
  }

  void add() {
    vary();
    take_states();
    take_slices();
    reverse_.run();
    return_states();
    return_slices();
    body_.inputs = std::move(inputs_);
    body_.outputs = std::move(outputs_);
    set_producers(body_);
    push();
  }

private:
  bool has_gradient(const Steps::State& state) const {
    return may_vary(body_.at(body_inputs_[state.in]).type);
  }

  /// Says which inputs of the body gradients are wanted of.
  void vary() {
    std::vector<ValueId> xs;
    for (const Steps::State& state : s_.states)
      if (has_gradient(state)) xs.push_back(body_inputs_[state.in]);
    for (const Steps::Slice& slice : s_.inputs)
      if (slice.source >= 0) xs.push_back(body_inputs_[slice.place]);
    for (ValueId v : captured_) xs.push_back(inside(body_, c_.b.graph, v));
    reverse_.vary(xs);
  }

  void take_states() {
    for (const Steps::State& state : s_.states) {
      if (!has_gradient(state)) continue;
      const ValueId like = state.last >= 0 ? state.last : state.source;
      node_.inputs.push_back(state.gradient >= 0 ? state.gradient : c_.b.filled(like, 0));
      inputs_.push_back(add_like(body_, body_.at(body_outputs_[state.out])));
      reverse_.give(body_outputs_[state.out], inputs_.back());
      sources_.push_back(state.source);
    }
    for (ValueId v : captured_) {
      node_.inputs.push_back(c_.b.filled(v, 0));
      sums_.push_back(add_like(body_, c_.b.graph.at(v)));
      inputs_.push_back(sums_.back());
      sources_.push_back(v);
    }
  }

  /// What each step reads: the slices that it read on the way there, then the gradients of those that it
  /// made.
  void take_slices() {
    std::vector<int64_t> axes, directions;
    auto take = [&](const Steps::Slice& slice, ValueId inner) {
      node_.inputs.push_back(slice.outer);
      inputs_.push_back(inner);
      axes.push_back(slice.axis);
      directions.push_back(1 - slice.direction);
    };
    for (const Steps::Slice& slice : s_.inputs) take(slice, body_inputs_[slice.place]);
    for (const Steps::Slice& slice : s_.outputs) {
      const ValueId g = add_like(body_, body_.at(body_outputs_[slice.place]));
      take(slice, g);
      reverse_.give(body_outputs_[slice.place], g);
    }
    node_.attributes = {{"body", s_.body},
                        {"num_scan_inputs", static_cast<int64_t>(axes.size())},
                        {"scan_input_axes", axes},
                        {"scan_input_directions", directions}};
  }

  void return_states() {
    for (const Steps::State& state : s_.states)
      if (has_gradient(state)) outputs_.push_back(gradient_or_zeros(reverse_, body_inputs_[state.in]));
    for (size_t k = 0; k < captured_.size(); ++k) {
      const ValueId g = reverse_.gradient(inside(body_, c_.b.graph, captured_[k]));
      outputs_.push_back(g < 0 ? own(reverse_.b, sums_[k]) : reverse_.b.emit("Add", {sums_[k], g}, sums_[k]));
    }
  }

  void return_slices() {
    std::vector<int64_t> axes, directions;
    for (const Steps::Slice& slice : s_.inputs) {
      if (slice.source < 0) continue;
      outputs_.push_back(gradient_or_zeros(reverse_, body_inputs_[slice.place]));
      axes.push_back(slice.axis);
      directions.push_back(1 - slice.direction);
      sources_.push_back(slice.source);
    }
    if (axes.empty()) return;
    node_.attributes["scan_output_axes"] = axes;
    node_.attributes["scan_output_directions"] = directions;
  }

  void push() {
    for (ValueId v : sources_) node_.outputs.push_back(add_like(c_.b.graph, c_.b.graph.at(v)));
    const std::vector<ValueId> made = node_.outputs;
    c_.b.push(std::move(node_));
    for (size_t k = 0; k < made.size(); ++k) c_.give_to(sources_[k], made[k]);
  }

  const RuleCall& c_;
  const Steps& s_;
  Graph& body_;
  const std::vector<ValueId> body_inputs_, body_outputs_; ///< as they were on the way there
  const std::vector<ValueId> captured_;
  Reverse reverse_;
  Node node_;
  std::vector<ValueId> inputs_, outputs_; ///< of the body on the way back
  std::vector<ValueId> sums_;             ///< of captured values, of the steps so far
  std::vector<ValueId> sources_;          ///< what the outputs are gradients of
};

size_t first_state(const RuleCall& c) { return c.node.op_type == "Loop" ? 2 : 0; }

size_t scanned_inputs(const RuleCall& c) {
  const int64_t n = c.integer("num_scan_inputs", 0), most = static_cast<int64_t>(c.node.inputs.size());
  TBX_MODEL(n >= 0 && n <= most && c.node.inputs.size() >= first_state(c), "the inputs do not fit the body");
  return static_cast<size_t>(n);
}

size_t scanned_outputs(const RuleCall& c) {
  const size_t states = c.node.inputs.size() - scanned_inputs(c) - first_state(c);
  const size_t others = states + (first_state(c) ? 1 : 0);
  const auto body = body_of(c, "body");
  TBX_MODEL(body->outputs.size() >= others && body->inputs.size() >= c.node.inputs.size(),
            "the body does not fit the inputs");
  return body->outputs.size() - others;
}

/// The node once more, with the inputs `kept` of its body as slices of further results, which are returned.
std::vector<ValueId> run_keeping(const RuleCall& c, const std::vector<ValueId>& kept) {
  Node node = c.node;
  own_bodies(node);
  Graph& body = **checked_attribute<std::shared_ptr<Graph>>(node, "body");
  GradientBuilder b(body, body.nodes, c.node.origin);
  for (ValueId& v : node.outputs)
    if (v >= 0) v = add_like(c.b.graph, c.b.graph.at(v));
  node.outputs.resize(c.node.inputs.size() - scanned_inputs(c) - first_state(c) + scanned_outputs(c), -1);
  std::vector<ValueId> slices;
  for (ValueId v : kept) {
    body.outputs.push_back(own(b, v));
    ValueType type = body.at(v).type;
    if (type.kind != ValueType::tensor && type.kind != ValueType::unknown)
      throw_unsupported("the gradient of {} with a state that is no tensor", describe(c.b.graph, c.node));
    if (type.shape)
      type.shape->insert(type.shape->begin(),
                         body.context->symbol(fmt::format("steps'{}", c.b.graph.values.size())));
    slices.push_back(add_value(c.b.graph, fmt::format("steps'{}", c.b.graph.values.size()), type));
    node.outputs.push_back(slices.back());
    for (const char* name : {"scan_output_axes", "scan_output_directions"})
      if (auto it = node.attributes.find(name); it != node.attributes.end())
        std::get<std::vector<int64_t>>(it->second).push_back(0);
  }
  set_producers(body);
  c.b.push(std::move(node));
  return slices;
}

/// Attribute `name` of a Scan: one number for each of `count` tensors of slices.
std::vector<int64_t> per_scan(const RuleCall& c, const char* name, size_t count) {
  std::vector<int64_t> values = c.integers(name);
  if (values.empty()) values.resize(count);
  TBX_MODEL(values.size() == count, "attribute '{}' has {} entries for {}", name, values.size(), count);
  return values;
}

} // namespace

void if_rule(const RuleCall& c) {
  const std::vector<ValueId> captured = varying_captures(c);
  Node node;
  node.name = c.node.name;
  node.op_type = "If";
  node.opset = c.node.opset;
  node.inputs = c.node.inputs;
  for (const char* name : {"then_branch", "else_branch"}) {
    auto body = body_of(c, name);
    Reverse r = reverse_of(c, *body);
    std::vector<ValueId> xs, outputs;
    for (ValueId v : captured) xs.push_back(inside(*body, c.b.graph, v));
    r.vary(xs);
    for (size_t k = 0; k < body->outputs.size(); ++k)
      if (ValueId g = c.gradient(static_cast<int>(k)); g >= 0)
        r.give(body->outputs[k], inside(*body, c.b.graph, g));
    r.run();
    for (ValueId x : xs) outputs.push_back(gradient_or_zeros(r, x));
    body->outputs = std::move(outputs);
    set_producers(*body);
    node.attributes[name] = body;
  }
  for (ValueId v : captured) node.outputs.push_back(add_like(c.b.graph, c.b.graph.at(v)));
  const std::vector<ValueId> made = node.outputs;
  c.b.push(std::move(node));
  for (size_t k = 0; k < made.size(); ++k) c.give_to(captured[k], made[k]);
}

void scan_rule(const RuleCall& c) {
  if (c.node.opset < 9) throw_unsupported("the gradient of a Scan over batches, as before opset 9");
  Steps s{body_of(c, "body"), {}, {}, {}};
  const size_t slices = scanned_inputs(c), states = c.node.inputs.size() - slices,
               results = scanned_outputs(c);
  const auto axes = per_scan(c, "scan_input_axes", slices),
             directions = per_scan(c, "scan_input_directions", slices),
             out_axes = per_scan(c, "scan_output_axes", results),
             out_directions = per_scan(c, "scan_output_directions", results);
  const std::vector<ValueId> kept =
      run_keeping(c, {s.body->inputs.begin(), s.body->inputs.begin() + static_cast<std::ptrdiff_t>(states)});
  for (size_t n = 0; n < states; ++n) {
    const ValueId last = n < c.node.outputs.size() ? c.node.outputs[n] : -1;
    s.states.push_back({n, n, c.node.inputs[n], last, c.gradient(static_cast<int>(n))});
    s.inputs.push_back({n, kept[n], 0, 0});
  }
  for (size_t k = 0; k < slices; ++k) {
    const ValueId x = c.node.inputs[states + k];
    s.inputs.push_back({states + k, x, axes[k], directions[k], c.varies(x) ? x : -1});
  }
  for (size_t k = 0; k < results; ++k)
    if (ValueId g = c.gradient(static_cast<int>(states + k)); g >= 0)
      s.outputs.push_back({states + k, g, out_axes[k], out_directions[k]});
  BackwardScan(c, s).add();
}

void loop_rule(const RuleCall& c) {
  Steps s{body_of(c, "body"), {}, {}, {}};
  const size_t states = c.node.inputs.size() - 2, results = scanned_outputs(c);
  TBX_MODEL(s.body->inputs.size() == states + 2, "attribute 'body' is no loop body");
  const std::vector<ValueId> kept = run_keeping(c, s.body->inputs);
  for (size_t k = 0; k < kept.size(); ++k) s.inputs.push_back({k, kept[k], 0, 0});
  for (size_t n = 0; n < states; ++n) {
    const ValueId last = n < c.node.outputs.size() ? c.node.outputs[n] : -1;
    s.states.push_back({2 + n, 1 + n, c.node.inputs[2 + n], last, c.gradient(static_cast<int>(n))});
  }
  for (size_t k = 0; k < results; ++k)
    if (ValueId g = c.gradient(static_cast<int>(states + k)); g >= 0)
      s.outputs.push_back({1 + states + k, g, 0, 0});
  BackwardScan(c, s).add();
}

} // namespace tbx::graph
