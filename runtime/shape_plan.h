// ShapePlan: the executable with all sizes evaluated for one assignment of its symbols, and the arena laid
// out.
#pragma once

#include <vector>

#include "runtime/bind.h"
#include "runtime/layout.h"

namespace tbx::runtime {

struct OperandShape {
  std::vector<int64_t> sizes, strides;
  int64_t offset_bytes = 0;
};

struct StepShape {
  int64_t tasks = 0, scratch_bytes = 0; ///< kernel steps; scratch is per thread, on a device of the launch
  int64_t state_bytes = 0;              ///< of the scratch, that are cleared before
  int64_t blocks = 0;                   ///< of a launch on a device
  int64_t copy_bytes = 0;               ///< copy steps
  std::vector<int64_t> size_args;
  std::vector<OperandShape> inputs, outputs; ///< extern steps
  int64_t workspace_bytes = 0;
};

struct ShapePlan {
  std::vector<int64_t> symbols;
  std::vector<int64_t> room; ///< symbols for which places were laid out; empty: its own
  std::vector<BufferShape> buffers;
  std::vector<StepShape> steps;
  int64_t arena_bytes = 0;   ///< buffers that live in the arena of the host
  int64_t device_bytes = 0;  ///< the same on the device, and behind them what its steps need to work
  int64_t device_work = 0;   ///< where that begins
  int64_t scratch_bytes = 0; ///< per thread, the most any step needs
  int64_t workspace_bytes = 0;
  bool stays_with_caller = false; ///< no step asks for other threads: a session of that many threads says so
  // Of a run whose steps find out sizes.
  std::vector<bool> extended; ///< by step: what it found in an earlier run is still here
  bool same_places = false;   ///< as in the run before, so far
};

BufferShape evaluate_buffer(const BufferPlan& buffer, std::span<const int64_t> symbols);
/// The operands of a library call, without their memory. `shape` has their sizes.
struct CallRefs {
  std::vector<extern_kernels::TensorRef> inputs, outputs;
};
CallRefs refs_of(const Executable& plan, const ExternStep& call, const StepShape& shape);
/// The sizes of a step alone: no library is asked, and nothing checked.
StepShape sizes_of_step(const Executable& plan, size_t step, std::span<const int64_t> symbols);
/// Throws ModelError where an operand of a library call is not within its buffer, or does not fit the others,
/// as far as `buffers` are given: what is known of all of them before the step.
StepShape evaluate_step(const BoundExecutable& bound, size_t step, std::span<const int64_t> symbols,
                        std::span<const BufferShape> buffers = {});

/// What libraries run for an extern step: for the sizes of runs so far, and for its own where all are known
/// while compiling, on that many threads. For explain.
std::vector<std::string> implementations_of(const BoundExecutable& bound, size_t step, int threads);

/// Symbols by which the shape of each buffer and step is found.
struct SymbolUses {
  std::vector<std::vector<int>> buffers, steps;
};

/// What is known of the shapes of a plan before any run.
struct ShapeFacts {
  SymbolUses uses;
  /// By step: the buffers and steps whose sizes are known when it has run, and were not before.
  struct Found {
    std::vector<int> buffers, steps;
  };
  std::vector<Found> found;
  std::vector<bool> later_buffers, later_steps; ///< not known from the inputs alone
  std::vector<bool> made;                       ///< buffers whose memory a step brings
  Lives lives;
};
ShapeFacts shape_facts(const Executable& plan);

/// All that is known from the inputs; symbols that steps find out are -1. `previous`: a plan for other
/// symbols, of which what they do not change is taken over: a decoder grows by a token a run. `operands`: of
/// sizes that are to reserve places alone they need not fit together.
enum class Operands { checked, unchecked };
ShapePlan make_shape_plan(const BoundExecutable& bound, std::vector<int64_t> symbols, const ShapeFacts& facts,
                          const ShapePlan* previous = nullptr, Operands operands = Operands::checked);

/// Before a run: `plan`, in which steps of the last run found sizes, has them yet to find. `known`: what it
/// was at first. `same_places`: its arena is what it was.
void forget_found(const ShapeFacts& facts, const ShapePlan& known, ShapePlan& plan, bool same_places);
/// What a step has found out, and where there is room for what has these sizes.
struct Extension {
  size_t step;
  std::span<const int64_t> symbols, before;         ///< of this run as far as known, and of the one before
  std::span<const int64_t> borders, device_borders; ///< of the arenas: no buffer lies across one
  bool exact = false;                               ///< no place is larger than its buffer
};
/// Adds places that are free, or behind all others. What is as in the run before is kept, and places that are
/// large enough.
void extend_shape_plan(const BoundExecutable& bound, ShapePlan& plan, const ShapeFacts& facts,
                       const Extension& by);

/// The plan for other symbols, with places where they are: `buffers` and `steps` are those whose sizes
/// change. False, and the plan is of no use, where something does not fit into its place.
bool move_shape_plan(const BoundExecutable& bound, ShapePlan& plan, std::span<const int64_t> symbols,
                     std::span<const int> buffers, std::span<const int> steps);

} // namespace tbx::runtime
