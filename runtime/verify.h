// Verify: what makes a model sound, be it one executable or a plan of values over several. What the compiler
// makes and what a package brings comes through here before it is bound.
#pragma once

#include <string>
#include <vector>

#include "runtime/executable.h"
#include "runtime/value_plan.h"

namespace tbx::runtime {

/// A part of a model, with the executables that it runs as: one per kind of inputs and assumption.
struct StageParts {
  size_t inputs = 0, outputs = 0; ///< of each of them
  std::vector<const Executable*> executables;
};

struct ModelParts {
  ModelParts(const Executable& whole); // NOLINT: an executable is a model
  ModelParts(std::vector<StageParts> stages, const ValuePlan* values);

  std::vector<StageParts> stages;
  const ValuePlan* values =
      nullptr; ///< the plan over the stages, bodies in it; null: the only stage is the model
};

/// What is wrong with a model. An executable: a number out of range, a size that cannot be evaluated, a
/// constant of another type or size than its buffer, a buffer that is read before it is written or outside of
/// its life, a view that leaves its buffer. A plan of values: a slot that there is not, that is read while it
/// holds nothing, or moved while others read it; an operator that there is not; a step that does not fit its
/// bodies or its stage. Empty: it is sound. Whatever this accepts can be bound and run without touching
/// memory that is not its own, as far as sizes are constant; the others are checked per run.
std::string defect_of(const ModelParts& model);
/// Throws InternalError with what is wrong.
void verify(const ModelParts& model);

} // namespace tbx::runtime
