// ValuePlan: a model (or the body of an If, Loop, Scan, SequenceMap) whose values are not all numeric
// tensors, as steps over numbered slots. Its compiled parts are stages: plans of numeric tensors that a
// Session runs.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/value.h"
#include "runtime/session.h"
#include "runtime/value_op.h"

namespace tbx::runtime {

/// A part of numeric tensors only. The first run for inputs of a new kind may compile it.
class TensorStage {
public:
  virtual ~TensorStage() = default;
  /// As Session::run; the outputs have no memory yet. Thread-safe.
  virtual void run(std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                   const RunOptions& options) const = 0;
};

struct ValuePlan;

/// A body and the slots around it that it captures: its inputs after the explicit ones.
struct BodyCall {
  std::shared_ptr<const ValuePlan> plan;
  std::vector<int> captures;
  std::shared_ptr<const Error>
      failure; ///< why there is no plan: a branch that cannot run, found while compiling
};

struct StageStep {
  std::shared_ptr<const TensorStage> stage;
};

struct OpStep {
  ValueNode node;
  ValueFunction function; ///< what the operator makes of the node
};

/// Input 0: the condition.
struct IfStep {
  BodyCall then_branch, else_branch;
};

/// Inputs: trip count, condition (either may be left out), initial values. Body: (iteration, condition,
/// carried...)
/// -> (condition, carried..., scanned...).
struct LoopStep {
  BodyCall body;
  int carried = 0;
  std::vector<int64_t> iteration_dims, condition_dims; ///< of the first two inputs: none, or one
};

/// Inputs: initial states, scanned inputs. Body: (states..., slices...) -> (states..., slices...).
struct ScanStep {
  BodyCall body;
  int states = 0;
  std::vector<int64_t> input_axes, output_axes;
  std::vector<bool> input_backwards, output_backwards;
  bool batched = false; ///< opset 8: input 0 is the lengths (or left out), axis 0 of all else a batch
};

/// Inputs: sequences (the first is one) and tensors. Body: one element each -> one element per output
/// sequence.
struct SequenceMapStep {
  BodyCall body;
};

struct Generation;
/// Inputs: those of GreedySearch and its like (runtime/generation/generation.h).
struct GenerationStep {
  std::shared_ptr<const Generation> what;
  BodyCall decoder;
  BodyCall first; ///< the encoder, or the decoder of the first token; no plan: there is none
};

struct ValueStep {
  std::variant<StageStep, OpStep, IfStep, LoopStep, ScanStep, SequenceMapStep, GenerationStep> what;
  std::vector<int> inputs, outputs; ///< slots; -1: left out
  std::vector<bool> last_use;       ///< per input: nobody reads the slot afterwards
  std::vector<int> release;         ///< slots that are done with after this step
  std::string where;                ///< the node, for errors
};

/// What a scan output is when there was no iteration.
struct ElementType {
  DType dtype = DType::undefined;
  std::vector<int64_t> dims; ///< unknown ones are 0
  /// Per dimension, the input of the body and its dimension that are as large; -1: none is known to be.
  std::vector<std::pair<int, int>> same;
};

struct ValueEntry {
  std::string name, type;         ///< type: "tensor(float32)", "sequence(tensor(string))"
  DType dtype = DType::undefined; ///< tensors, also inside optionals
  std::vector<std::string> dims;
  bool ranked = true; ///< false: a tensor whose number of dims the model leaves open
  int slot = -1;
  bool may_be_none = false;                             ///< an optional
  RuntimeValue::Kind kind = RuntimeValue::Kind::tensor; ///< of the value, or of the optional's element
  ElementType element;                                  ///< outputs of bodies
  bool only_here = false; ///< outputs: the slot is no input, constant or other output
};

struct ValuePlan {
  int num_slots = 0;
  std::vector<ValueEntry> inputs, outputs;
  std::vector<std::pair<int, RuntimeValue>> constants;
  std::vector<ValueStep> steps;
};

/// Calls `see(body)` for every body of a step.
template <class See> void for_each_body(const ValueStep& step, See see) {
  if (const auto* branch = std::get_if<IfStep>(&step.what)) {
    see(branch->then_branch);
    see(branch->else_branch);
  } else if (const auto* loop = std::get_if<LoopStep>(&step.what)) {
    see(loop->body);
  } else if (const auto* scan = std::get_if<ScanStep>(&step.what)) {
    see(scan->body);
  } else if (const auto* map = std::get_if<SequenceMapStep>(&step.what)) {
    see(map->body);
  } else if (const auto* generation = std::get_if<GenerationStep>(&step.what)) {
    see(generation->decoder);
    see(generation->first);
  }
}

/// What is wrong with a plan: a slot that there is not, that is read while it holds nothing, or moved while
/// others read it; a step that does not fit its bodies. Empty: it is sound. Whatever this accepts can be run
/// without touching memory that is not its own. The bodies' own plans have to be sound already.
std::string defect_of(const ValuePlan& plan);
/// Throws InternalError with what is wrong.
void verify(const ValuePlan& plan);

/// Deterministic text (`tbx dump --stage=plan`); stages are called by their place in `stages`.
std::string to_string(const ValuePlan& plan, std::span<const TensorStage* const> stages);

} // namespace tbx::runtime
