// Bind values: value plan + stages -> what runs. As runtime/bind.h does for an executable, this is where
// names of operators become functions and numbers of stages what computes them.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "runtime/session.h"
#include "runtime/value_plan.h"

namespace tbx::runtime {

/// A part of numeric tensors only. The first run for inputs of a new kind may compile it.
class TensorStage {
public:
  virtual ~TensorStage() = default;
  /// As Session::run; the outputs have no memory yet. Thread-safe.
  virtual void run(std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                   const RunOptions& options) const = 0;
};
using TensorStages = std::vector<std::shared_ptr<const TensorStage>>;

struct BoundValuePlan;

struct BoundBody {
  std::shared_ptr<const BoundValuePlan> plan; ///< null: there is none
  std::shared_ptr<const Error> failure;       ///< of a branch that cannot run: thrown when it is taken
};

struct BoundValueStep {
  std::shared_ptr<const TensorStage> stage; ///< of a StageStep
  ValueFunction function;                   ///< of an OpStep: what the operator makes of the node
  std::array<BoundBody, 2> bodies;          ///< in the order of for_each_body
};

struct BoundValuePlan {
  std::shared_ptr<const ValuePlan> plan;
  std::vector<BoundValueStep> steps; ///< by step
};

/// Needs a verified plan (runtime/verify.h) of these stages. Throws Error that names the node where an
/// operator refuses its attributes, unless that is in a branch that need not be taken.
std::shared_ptr<const BoundValuePlan> bind(std::shared_ptr<const ValuePlan> plan, const TensorStages& stages);

} // namespace tbx::runtime
