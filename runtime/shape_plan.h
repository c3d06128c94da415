// ShapePlan: the executable with all sizes evaluated for one assignment of its symbols, and the arena laid
// out.
#pragma once

#include <vector>

#include "runtime/bind.h"

namespace tbx::runtime {

struct BufferShape {
  std::vector<int64_t> sizes, strides;
  int64_t bytes = 0;
  int64_t room = 0;    ///< bytes of its place, at least `bytes`
  int64_t offset = -1; ///< in the arena of its device; -1: not there
};

struct OperandShape {
  std::vector<int64_t> sizes, strides;
  int64_t offset_bytes = 0;
};

struct StepShape {
  int64_t tasks = 0, scratch_bytes = 0; ///< kernel steps; scratch is per thread, on a device of the launch
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
};

/// By buffer: on a device its place is the memory of a state.
std::vector<bool> places_of_states(const Executable& plan);

BufferShape evaluate_buffer(const BufferPlan& buffer, std::span<const int64_t> symbols);
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
SymbolUses symbol_uses(const Executable& plan);

/// Needs an executable without data-dependent symbols (all symbols known). `previous`: a plan for other
/// symbols, of which what they do not change is taken over: a decoder grows by a token a run. `operands`: of
/// sizes that are to reserve places alone they need not fit together.
enum class Operands { checked, unchecked };
ShapePlan make_shape_plan(const BoundExecutable& bound, std::vector<int64_t> symbols, const SymbolUses& uses,
                          const ShapePlan* previous = nullptr, Operands operands = Operands::checked);

/// The plan for other symbols, with places where they are: `buffers` and `steps` are those whose sizes
/// change. False, and the plan is of no use, where something does not fit into its place.
bool move_shape_plan(const BoundExecutable& bound, ShapePlan& plan, std::span<const int64_t> symbols,
                     std::span<const int> buffers, std::span<const int> steps);

} // namespace tbx::runtime
