// Derivative: what Gradient needs of one operator, from the expressions that it lowers to.
//
// A node of the compiler's own domain: graph/differentiate/gradient.cpp makes it, its form is said in
// graph/differentiate/derivative_node.h. The operator is lowered once more, as a program of its own on inputs
// that only stand for the real ones, and that program is differentiated. What comes out are loop nests again,
// so gradients of gradients need nothing more.
#include "graph/differentiate/derivative_node.h"
#include "lowering/adjoint.h"
#include "lowering/ask.h"
#include "lowering/lower.h"
#include "lowering/op_helpers.h"
#include "lowering/ops/families.h"

namespace tbx::lowering {
namespace {

using Values = std::vector<LoweredValue>;

/// The operator alone, as a graph: inputs are what gradients can be asked for and what is not constant.
struct Alone {
  Graph graph;
  std::vector<int> inputs;  ///< of the graph: which input of the operator
  std::vector<int> outputs; ///< of the graph: which output of the operator
};

ValueId add_value(Graph& g, std::string name, ValueType type) {
  g.values.push_back({std::move(name), std::move(type), -1, nullptr});
  return static_cast<ValueId>(g.values.size()) - 1;
}

Alone alone(OpContext& ctx, const graph::DerivativeNode& d) {
  Alone a;
  a.graph.context = ctx.program.context;
  a.graph.origins = ctx.graph.origins;
  Node node = d.forward;
  graph::DerivativeNode::set_differentiated(node);
  node.inputs.clear();
  for (int i = 0; i < d.num_inputs; ++i) {
    const LoweredValue& value = ctx.value(i);
    if (value.is_none) {
      node.inputs.push_back(-1);
      continue;
    }
    TBX_MODEL(value.is_tensor(), "input {} is not a tensor", i);
    if (is_complex(ctx.dtype(i))) throw_unsupported("gradients of complex tensors");
    ValueId id = add_value(a.graph, fmt::format("input {}", i),
                           {ValueType::tensor, ctx.dtype(i), ctx.sizes(i), nullptr});
    node.inputs.push_back(id);
    if (auto constant = ctx.constant(i); constant && !ctx.wants(i)) {
      a.graph.at(id).constant = constant;
    } else {
      a.graph.inputs.push_back(id);
      a.inputs.push_back(i);
    }
  }
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    if (node.outputs[k] < 0) continue;
    node.outputs[k] = add_value(a.graph, fmt::format("output {}", k), {});
    a.graph.at(node.outputs[k]).producer = 0;
    if (!ctx.has(d.num_inputs + static_cast<int>(k))) continue;
    a.graph.outputs.push_back(node.outputs[k]);
    a.outputs.push_back(static_cast<int>(k));
  }
  a.graph.nodes.push_back(std::move(node));
  return a;
}

ir::Program lower_alone(OpContext& ctx, const Alone& a) {
  LowerOptions options;
  options.target = ctx.program.target;
  options.assume_broadcast = ctx.program.assume_broadcast;
  options.assume_exact_floats = ctx.program.assume_exact_floats;
  Lowered lowered = lower(a.graph, options);
  if (auto* program = std::get_if<ir::Program>(&lowered)) return std::move(*program);
  const Demand& demand = std::get<Demand>(lowered);
  switch (demand.kind) {
  case Demand::Kind::shapes:
  case Demand::Kind::elements: throw Asked{demand.kind, demand.reason, {}}; // of this node's inputs
  case Demand::Kind::split:
  case Demand::Kind::assumptions: break;
  }
  throw Error(demand.reason);
}

/// A gradient has the type and the sizes of what it is the gradient of.
void check_gradient(OpContext& ctx, const TensorBox& g, const ir::Buffer& y, int output) {
  TBX_MODEL(g.dtype() == y.dtype && g.sizes().size() == y.sizes.size(),
            "the gradient of output {} is {} of rank {}, the output {} of rank {}", output,
            name_of(g.dtype()), g.rank(), name_of(y.dtype), y.sizes.size());
  for (size_t k = 0; k < y.sizes.size(); ++k) {
    if (ir::provably_equal(g.sizes()[k], y.sizes[k])) continue;
    if (ir::has_unbacked(y.sizes[k])) throw ir::NoDerivative{"a run decides how large its result is"};
    ctx.program.add_check(
        g.sizes()[k] - y.sizes[k], true,
        fmt::format("the gradient of output {} has another size than it along dimension {}", output, k));
  }
}

Values derivative(OpContext& ctx) {
  const auto d = graph::DerivativeNode::read(ctx.node);
  const Alone a = alone(ctx, d);
  try {
    const ir::Program program = lower_alone(ctx, a);
    for (const ir::Check& c : program.checks)
      ctx.program.add_check(c.value, c.equal, c.message, c.assumption);
    std::vector<TensorBox> inputs;
    std::vector<char> wanted;
    for (int i : a.inputs) inputs.push_back(ctx.in(i)), wanted.push_back(ctx.wants(i));
    Adjoint adjoint(ctx.program, program, inputs, wanted, d.differentiated);
    for (size_t k = 0; k < a.outputs.size(); ++k) {
      const TensorBox& g = ctx.in(d.num_inputs + a.outputs[k]);
      check_gradient(ctx, g, program.at(program.outputs[k].buffer), a.outputs[k]);
      adjoint.seed(k, convert(ctx, g, compute_type(g.dtype())));
    }
    adjoint.run();
    Values out(static_cast<size_t>(d.num_inputs));
    for (size_t i = 0; i < a.inputs.size(); ++i) {
      if (!wanted[i]) continue;
      const DType type = inputs[i].dtype();
      TensorBox g = adjoint.gradient(i);
      out[a.inputs[i]] = g.defined() ? convert(ctx, g, type) : full(ctx, type, inputs[i].sizes(), 0);
    }
    return out;
  } catch (const ir::NoDerivative& none) {
    throw_unsupported("{} cannot be differentiated: {}", d.forward.op_type, none.why);
  }
}

} // namespace

void register_derivative(Registry& r) { r.add("Derivative", since(1), derivative, "tensorbox"); }

} // namespace tbx::lowering
