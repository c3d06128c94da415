// Execution of value plans: the slots of one run, and the steps with bodies. Used by value_session.cpp and
// control_steps.cpp only.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/stop.h"
#include "runtime/bind_values.h"

namespace tbx::runtime {

/// What one execution of a plan needs; reused by later ones.
struct ValueFrame {
  explicit ValueFrame(const BoundValuePlan& bound);

  const BoundValuePlan& bound;
  const ValuePlan& plan; ///< of `bound`
  std::vector<RuntimeValue> slots;
  /// Frames of the bodies of each step, in the order of for_each_body: kept from iteration to iteration.
  std::vector<std::array<std::unique_ptr<ValueFrame>, 2>> bodies;
  // Scratch of single steps.
  std::vector<RunTensor> stage_inputs, stage_outputs;
  std::vector<ValueArgument> arguments;
  std::vector<RuntimeValue> results;

  ValueFrame& body(size_t step, size_t number = 0);
};

/// Limits of a run, checked between steps.
struct RunGuard {
  const RunOptions& options; ///< with `started`
  Stop stop() const;
  void check() const { stop().check(); }
  /// Bytes that the run may take.
  int64_t memory() const;
  /// Memory for what a loop keeps from its iterations.
  void check_gathered(int64_t bytes) const;
};

/// Runs all steps; inputs are in their slots.
void run_frame(ValueFrame& frame, const RunGuard& guard);

/// Puts the captured values of the frame around it into the body's slots.
void set_captures(const ValueFrame& outer, const BodyCall& call, ValueFrame& body);
/// Lets go of the inputs of a body, the captured ones included.
void clear_inputs(ValueFrame& body);
/// Moves (or copies, where a slot is given out twice) the outputs of a frame out of it.
RuntimeValue take_output(ValueFrame& frame, size_t i);

void run_if(const IfStep& s, const ValueStep& step, size_t number, ValueFrame& frame, const RunGuard& guard);
void run_loop(const LoopStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
              const RunGuard& guard);
void run_scan(const ScanStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
              const RunGuard& guard);
void run_sequence_map(const SequenceMapStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
                      const RunGuard& guard);
void run_generation(const GenerationStep& s, const ValueStep& step, size_t number, ValueFrame& frame,
                    const RunGuard& guard);

} // namespace tbx::runtime
