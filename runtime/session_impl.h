// Session::Impl: what a session keeps, and what one run needs. Its functions are in session.cpp and in
// session_edges.cpp, session_planned.cpp, session_dynamic.cpp and session_steps.cpp.
#pragma once

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

namespace tbx::runtime {

using Clock = std::chrono::steady_clock;

/// What one run needs besides the plan; reused by later runs.
struct RunContext {
  std::unique_ptr<DeviceContext> device;    ///< of plans with steps of a device; ends last
  std::vector<EdgeUse> edges_in, edges_out; ///< of this run, by place in the signature
  void* device_work = nullptr;              ///< what a step of the device needs to work
  std::shared_ptr<void> device_work_owner;
  Stop stop;
  std::vector<int64_t> symbols;
  std::vector<int64_t> symbols_before; ///< of the run before
  std::vector<void*> pointers;         ///< per buffer
  std::vector<void*> kernel_buffers;
  std::vector<KernelRoom> kernel_rooms;
  std::vector<extern_kernels::TensorRef> inputs, outputs;
  Block arena, scratch, workspace;
  std::vector<std::shared_ptr<void>> dynamic; ///< per buffer, data-dependent shapes only
  std::vector<BufferShape> dynamic_shapes;
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
  int threads = 1;
  std::shared_ptr<Arena> arena;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<RunContext>> idle;
  SymbolUses uses; ///< of the plan
  Growing growing;
  std::vector<std::vector<int>> begin_at, end_at; ///< by step: buffers, of executables that depend on data
  std::vector<bool> kept; ///< by buffer: its place on a device is the memory of a state
  mutable std::vector<std::shared_ptr<ShapePlan>> shape_plans; ///< changed where nobody else has them
  mutable BlockPool pool;
  mutable std::unique_ptr<OutputPool> device_pool; ///< of outputs on the device

  std::shared_ptr<const ShapePlan> known_shapes(const std::vector<int64_t>& symbols) const;
  std::shared_ptr<const ShapePlan> shapes_for(const std::vector<int64_t>& symbols) const;
  bool stays_with_caller(const ShapePlan& shapes) const;
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
  void check_output(const RunTensor& out, const SignatureEntry& entry, const BufferShape& shape) const;
  void refuse_async(std::span<const RunTensor> outputs) const;
  bool start_again(RunContext& ctx, const RunOptions& options) const;
  void remember(RunContext& ctx, const ShapePlan& shapes, std::span<const RunTensor> outputs,
                SameRuns& same) const;
  DeviceContext::Mode place_edges(RunContext& ctx, const ShapePlan& shapes, std::span<RunTensor> outputs,
                                  bool recorded) const;
  void touched_by(size_t s, const RunContext& ctx, const ShapePlan& shapes, std::vector<Access>& all) const;
  void check_memory(const ShapePlan& shapes, std::span<const RunTensor> outputs) const;
  void run_planned(RunContext& ctx, std::shared_ptr<const ShapePlan> plan_of_run,
                   std::span<RunTensor> outputs, const RunOptions& options) const;
  void run_dynamic(RunContext& ctx, std::span<RunTensor> outputs, const RunOptions& options) const;
  void run_dynamic_step(size_t s, RunContext& ctx, std::span<RunTensor> outputs,
                        const RunOptions& run_options, int64_t& in_use, Clock::time_point start) const;
  void place_output(RunTensor& out, const SignatureEntry& entry, const BufferShape& shape,
                    RunContext& ctx) const;
  void run_step(size_t s, const StepShape& shape, RunContext& ctx, std::span<const BufferShape> shapes) const;
  void check_evaluated(const KernelStep& step, const EvaluatedKernel& kernel, RunContext& ctx,
                       std::span<const BufferShape> shapes) const;
  void run_kernel(const KernelStep& step, const Kernel& kernel, const StepShape& shape,
                  RunContext& ctx) const;
  void run_on_device(size_t s, const StepShape& shape, RunContext& ctx) const;
  void run_extern(const Step& step, const extern_kernels::ExternKernel& library, const StepShape& shape,
                  RunContext& ctx) const;
  int chunks_of(const KernelStep& step, int64_t tasks) const;
  void observed_step(size_t s, const StepShape& shape, RunContext& ctx, const RunOptions& options,
                     std::span<const BufferShape> shapes, Clock::time_point start) const;
};

} // namespace tbx::runtime
