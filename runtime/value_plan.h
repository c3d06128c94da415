// ValuePlan: a model (or the body of an If, Loop, Scan, SequenceMap) whose values are not all numeric
// tensors, as steps over numbered slots. Plain data, as it comes from the compiler and from a package; what
// runs is what runtime/bind_values.h makes of it. Its parts of numeric tensors are stages, which it numbers:
// they are executables of their own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/value.h"
#include "runtime/generation/generation.h"
#include "runtime/value_op.h"

namespace tbx::runtime {

struct ValuePlan;

/// An Error, as data.
struct Failure {
  ErrorKind kind = ErrorKind::internal;
  std::string message, hint, where;

  static Failure of(const Error& error);
  Error error() const;
};

/// A body and the slots around it that it captures: its inputs after the explicit ones.
struct BodyCall {
  std::shared_ptr<const ValuePlan> plan;
  std::vector<int> captures;
  std::optional<Failure> failure; ///< why there is no plan: a branch that cannot run, found while compiling
};

struct StageStep {
  int stage = -1; ///< of the model, bodies included
};

struct OpStep {
  ValueNode node;
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

/// Inputs: those of GreedySearch and its like (runtime/generation/generation.h).
struct GenerationStep {
  Generation what;
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

/// Calls `see(body)` for every body of a step, of which there are two at most.
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

/// Deterministic text (`tbx dump --stage=plan`).
std::string to_string(const ValuePlan& plan);

} // namespace tbx::runtime
