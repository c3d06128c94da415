#include "runtime/verify.h"

#include "base/error.h"
#include "runtime/defect.h"

namespace tbx::runtime {

ModelParts::ModelParts(const Executable& whole)
    : stages{{whole.inputs.size(), whole.outputs.size(), {&whole}}} {}
ModelParts::ModelParts(std::vector<StageParts> stages, const ValuePlan* values)
    : stages(std::move(stages)), values(values) {}

std::string defect_of(const ModelParts& model) {
  return first_defect([&] {
    for (const StageParts& stage : model.stages)
      for (const Executable* executable : stage.executables) {
        require_sound(*executable);
        require(executable->inputs.size() == stage.inputs && executable->outputs.size() == stage.outputs,
                "programs of one part have other inputs and outputs");
      }
    if (model.values)
      require_sound(*model.values, model.stages);
    else
      require(model.stages.size() == 1, "it has {} parts and no plan for them", model.stages.size());
  });
}

void verify(const ModelParts& model) {
  if (const std::string defect = defect_of(model); !defect.empty())
    throw Error(ErrorKind::internal,
                (model.values ? "the plan of values is broken: " : "the executable is broken: ") + defect);
}

} // namespace tbx::runtime
