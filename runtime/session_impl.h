// Session::Impl: what a session keeps, and what one run needs. Its functions are in session.cpp and in
// session_edges.cpp, session_planned.cpp, session_found.cpp and session_steps.cpp.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/stop.h"
#include "runtime/arena.h"
#include "runtime/block_pool.h"
#include "runtime/device_context.h"
#include "runtime/growing.h"
#include "runtime/memory.h"
#include "runtime/session.h"
#include "runtime/shape_plan.h"
#include "runtime/state_room.h"

namespace tbx::runtime {

using Clock = std::chrono::steady_clock;

/// An arena that grows in a run: blocks one behind the other.
class ArenaBlocks {
public:
  void begin(std::byte* memory, int64_t bytes) {
    blocks_.assign(1, {memory, nullptr});
    ends_.assign(1, bytes);
  }
  void add(std::shared_ptr<void> memory, int64_t end) {
    auto* begin = static_cast<std::byte*>(memory.get());
    blocks_.push_back({begin, std::move(memory)});
    ends_.push_back(end);
  }
  /// Keeps the first.
  void end() { begin(blocks_[0].begin, ends_[0]); }
  std::byte* at(int64_t offset) const {
    size_t block = 0;
    while (block + 1 < blocks_.size() && offset >= ends_[block]) ++block;
    return blocks_[block].begin + (block ? offset - ends_[block - 1] : offset);
  }
  /// Where blocks end, by offset.
  const std::vector<int64_t>& ends() const { return ends_; }
  int64_t bytes() const { return ends_.back(); }

private:
  struct One {
    std::byte* begin;
    std::shared_ptr<void> owner;
  };
  std::vector<One> blocks_;
  std::vector<int64_t> ends_;
};

/// What one run needs besides the plan; reused by later runs.
struct RunContext {
  std::unique_ptr<DeviceContext> device;    ///< of plans with steps of a device; ends last
  std::vector<EdgeUse> edges_in, edges_out; ///< of this run, by place in the signature
  void* device_work = nullptr;              ///< what a step of the device needs to work
  bool rehearsed = false;                   ///< its kernels have what they need, for the first sizes
  std::shared_ptr<void> device_work_owner;
  Stop stop;
  std::vector<int64_t> symbols;
  std::vector<int64_t> symbols_before;                  ///< of the run before
  std::vector<void*> pointers;                          ///< per buffer
  std::vector<std::span<const std::byte>> outputs_take; ///< memory of the host, per output
  std::vector<std::shared_ptr<void>> kept_inputs;       ///< copies of those whose memory an output takes
  std::vector<void*> kernel_buffers;
  std::vector<KernelRoom> kernel_rooms;
  std::vector<extern_kernels::TensorRef> inputs, outputs;
  Block arena, scratch, workspace;
  int64_t counted_bytes = 0; ///< what counts for max_memory so far
  // Of plans whose steps find out sizes.
  std::shared_ptr<const ShapePlan> known; ///< what is known from the inputs
  ShapePlan shapes;                       ///< and what steps of the run have found
  ArenaBlocks blocks, device_blocks;      ///< places of its buffers
  int64_t wanted = 0;                     ///< bytes of the arena that hold all that runs found so far
  struct Made {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  std::vector<Made> made;           ///< per buffer: what its step made
  int64_t made_bytes = 0;           ///< of these, and of outputs that the session made
  std::span<RunTensor> run_outputs; ///< of this run
  /// Outputs that are to be on the device, and that steps of the host make.
  struct MadeOnHost {
    size_t output;
    std::shared_ptr<void> memory;
    int64_t bytes;
  };
  std::vector<MadeOnHost> made_on_host;
  /// Profiled steps of the device: entry of the profile, begin and end as marks of the stream.
  struct Timed {
    size_t entry, begin, end;
  };
  std::vector<Timed> timed;
  /// Of sessions of one thread: callers of an arena of one thread that another caller is in hand it their
  /// work, and as long as such work waits, the arena has a second thread. So each caller has an arena for
  /// itself.
  std::unique_ptr<Arena> own_arena;
};

struct Session::Impl {
  std::shared_ptr<const BoundExecutable> bound;
  const Executable* plan = nullptr; ///< the one that is bound
  SessionOptions options;
  mutable std::once_flag arena_made;
  mutable std::shared_ptr<Arena> shared_or_own;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<RunContext>> idle;
  ShapeFacts facts; ///< of the plan
  Growing growing;
  std::vector<std::vector<int>>
      made_until;         ///< by step: buffers that a step made, which it is the last to use
  std::vector<bool> kept; ///< by buffer: its place on a device is the memory of a state
  mutable std::vector<std::shared_ptr<ShapePlan>> shape_plans; ///< changed where nobody else has them
  mutable std::atomic<int64_t> most_found = 0; ///< bytes of the run that took most, where steps find sizes
  mutable BlockPool pool;
  mutable std::unique_ptr<OutputPool> device_pool; ///< of outputs on the device

  std::shared_ptr<const ShapePlan> known_shapes(const std::vector<int64_t>& symbols) const;
  std::shared_ptr<const ShapePlan> shapes_for(const std::vector<int64_t>& symbols) const;
  std::shared_ptr<const ShapePlan> shapes_of(std::span<const RunTensor> inputs) const;
  template <class ShapeOf> bool stays_with_caller(ShapeOf&& shape_of) const;
  bool will_stay_with_caller(const std::vector<int64_t>& symbols) const;
  /// Made when the first run asks for it. To try threads, and to start oneTBB, takes as long as a tenth of
  /// loading a small model, and such a model's runs stay with their callers.
  Arena& arena() const;
  int threads() const { return arena().threads(); }
  std::shared_ptr<ShapePlan> shapes_with_room(const std::vector<int64_t>& symbols) const;
  void expect_next(RunContext& ctx) const;
  void begin(RunContext& ctx, std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
             const RunOptions& options) const;
  void run(RunContext& ctx, std::shared_ptr<const ShapePlan> shapes, std::span<const RunTensor> inputs,
           std::span<RunTensor> outputs, const RunOptions& options) const;
  void begin_and_run(RunContext& ctx, std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                     const RunOptions& options) const;
  void end_device(RunContext& ctx, std::span<RunTensor> outputs, const RunOptions& options) const;
  void take_device_inputs(RunContext& ctx, std::span<const RunTensor> inputs) const;
  void check_places(std::span<const RunTensor> inputs) const;
  static void check_type(const RunTensor& out, const SignatureEntry& entry);
  void check_output(const RunTensor& out, const SignatureEntry& entry, const BufferShape& shape) const;
  void refuse_async(std::span<const RunTensor> outputs) const;
  bool start_again(RunContext& ctx, const RunOptions& options) const;
  void remember(RunContext& ctx, const ShapePlan& shapes, std::span<const RunTensor> outputs,
                SameRuns& same) const;
  DeviceContext::Mode place_edges(RunContext& ctx, const ShapePlan& shapes, std::span<RunTensor> outputs,
                                  bool recorded) const;
  void touched_by(size_t s, const RunContext& ctx, const ShapePlan& shapes, std::vector<Access>& all) const;
  int64_t check_memory(const ShapePlan& shapes, std::span<const RunTensor> outputs, int64_t made_bytes) const;
  int64_t begin_finding(RunContext& ctx, std::shared_ptr<const ShapePlan> known) const;
  void take_found(size_t s, RunContext& ctx) const;
  void place_found_output(int output, RunContext& ctx) const;
  void hand_over(int buffer, RunContext& ctx) const;
  void let_go(int buffer, RunContext& ctx) const;
  void end_finding(RunContext& ctx) const;
  void run_planned(RunContext& ctx, std::shared_ptr<const ShapePlan> plan_of_run,
                   std::span<RunTensor> outputs, const RunOptions& options) const;
  void keep_from_outputs(RunContext& ctx, std::span<const RunTensor> inputs,
                         std::span<const RunTensor> outputs) const;
  void place_output(RunTensor& out, const SignatureEntry& entry, const BufferShape& shape,
                    RunContext& ctx) const;
  void run_step(size_t s, const StepShape& shape, RunContext& ctx, std::span<const BufferShape> shapes) const;
  void check_evaluated(const KernelStep& step, const EvaluatedKernel& kernel, RunContext& ctx,
                       std::span<const BufferShape> shapes) const;
  void run_kernel(const KernelStep& step, const Kernel& kernel, const StepShape& shape,
                  RunContext& ctx) const;
  void run_on_device(size_t s, const StepShape& shape, RunContext& ctx) const;
  /// Addresses and sizes of a call's operands in this run.
  void find_operands(const std::vector<OperandView>& views, const std::vector<OperandShape>& shapes,
                     const RunContext& ctx, std::vector<extern_kernels::TensorRef>& operands) const;
  void rehearse_kernels(const ShapePlan& shapes, const RunContext& ctx) const;
  void run_extern(const Step& step, const extern_kernels::ExternKernel& library, const StepShape& shape,
                  RunContext& ctx) const;
  int chunks_of(const KernelStep& step, int64_t tasks) const;
  void observed_step(size_t s, const StepShape& shape, RunContext& ctx, const RunOptions& options,
                     std::span<const BufferShape> shapes, Clock::time_point start) const;
};

} // namespace tbx::runtime
