#include "runtime/bind_values.h"

#include "base/error.h"

namespace tbx::runtime {
namespace {

BoundBody bind_body(const BodyCall& call, const TensorStages& stages) {
  if (call.failure) return {nullptr, std::make_shared<const Error>(call.failure->error())};
  return {call.plan ? bind(call.plan, stages) : nullptr, nullptr};
}

/// Exporters leave branches that make no sense: an error only when one is taken, or where no other is left.
BoundBody bind_branch(const BodyCall& call, const TensorStages& stages) {
  try {
    return bind_body(call, stages);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return {nullptr, std::make_shared<const Error>(e)};
  }
}

BoundValueStep bind_step(const ValueStep& step, const TensorStages& stages) {
  BoundValueStep bound;
  if (const auto* stage = std::get_if<StageStep>(&step.what)) {
    bound.stage = stages.at(static_cast<size_t>(stage->stage));
  } else if (const auto* op = std::get_if<OpStep>(&step.what)) {
    const MakeValueFunction make = find_value_op(op->node.domain, op->node.op, op->node.opset);
    TBX_INTERNAL(make != nullptr);
    bound.function = make(op->node);
  } else if (const auto* branch = std::get_if<IfStep>(&step.what)) {
    bound.bodies = {bind_branch(branch->then_branch, stages), bind_branch(branch->else_branch, stages)};
    if (bound.bodies[0].failure && bound.bodies[1].failure) throw Error(*bound.bodies[0].failure);
  } else {
    size_t i = 0;
    for_each_body(step, [&](const BodyCall& call) { bound.bodies[i++] = bind_body(call, stages); });
  }
  return bound;
}

} // namespace

std::shared_ptr<const BoundValuePlan> bind(std::shared_ptr<const ValuePlan> plan,
                                           const TensorStages& stages) {
  auto bound = std::make_shared<BoundValuePlan>();
  for (const ValueStep& step : plan->steps) {
    try {
      bound->steps.push_back(bind_step(step, stages));
    } catch (Error& e) {
      e.add_where(step.where);
      throw;
    }
  }
  bound->plan = std::move(plan);
  return bound;
}

} // namespace tbx::runtime
