// One step of a run: a generated kernel in chunks, a library call, or work of a device.
#include "runtime/rehearsal.h"
#include "runtime/session_impl.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstring>

#include "base/budget.h"
#include "base/error.h"
#include "base/stop.h"
#include "runtime/failed_check.h"
#include "runtime/memory.h"
#include "runtime/run_checks.h"

namespace tbx::runtime {
namespace {

/// A kernel cheaper than this runs on the calling thread. It costs one to three microseconds to share work,
/// and as much to fetch 50 KB that another thread's core has in its cache.
constexpr double kInlineNs = 3'000;
constexpr double kBalanceNs = 200'000;  ///< a kernel dearer than this is cut finer than one chunk per thread
constexpr double kPieceNs = 20'000'000; ///< work between two looks at the time, where it is limited

/// Memory of the outputs of one data-dependent extern step: no more than `room` bytes.
class DynamicAllocator : public extern_kernels::OutputAllocator {
public:
  DynamicAllocator(const Executable& plan, const ExternStep& step, RunContext& ctx, BlockPool& pool,
                   int64_t room, bool is_limited)
      : plan_(plan), step_(step), ctx_(ctx), pool_(pool), room_(room), is_limited_(is_limited) {}
  void* allocate(int index, DType dtype, std::span<const int64_t> sizes) override {
    auto check = [](bool fits) { TBX_MODEL(fits, "a call makes other results: the plan is damaged"); };
    check(index >= 0 && index < static_cast<int>(step_.dynamic_outputs.size()));
    int buffer = step_.dynamic_outputs[index];
    check(buffer >= 0 && plan_.buffers[buffer].dtype == dtype);
    const std::vector<int>& dims = step_.dynamic_dims[index];
    check(dims.size() == sizes.size());
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] >= 0) ctx_.symbols[dims[d]] = sizes[d];
    const int64_t n = checked_numel(sizes), width = std::max<int64_t>(1, size_of(dtype));
    if (n > room_ / width)
      throw Error(ErrorKind::model,
                  fmt::format("output {} would have the shape [{}], there is memory for {} bytes", index,
                              fmt::join(sizes, ", "), room_),
                  is_limited_ ? how_to_raise("max_memory") : "smaller inputs or sizes need less");
    RunContext::Made& made = ctx_.made[buffer];
    ctx_.made_bytes += n * width - made.bytes;
    room_ -= n * width - made.bytes;
    made = {pool_.get(n * width), n * width};
    return ctx_.pointers[buffer] = made.memory.get();
  }

private:
  const Executable& plan_;
  const ExternStep& step_;
  RunContext& ctx_;
  BlockPool& pool_;
  int64_t room_;
  bool is_limited_; ///< by the caller, not by the machine
};

/// Whether an observer is shown the buffer behind step `s`: an output where all steps that write it have,
/// other memory, which may take another value later, where the first one has.
bool is_made_by(const Executable& plan, int buffer, size_t s) {
  if (plan.buffers[buffer].storage != StorageKind::output)
    return plan.buffers[buffer].first_step == static_cast<int>(s);
  bool here = false, later = false;
  for (size_t other = s; other < plan.steps.size(); ++other)
    for_each_buffer(plan.steps[other], [&](int b, bool writes) {
      if (b == buffer && writes) (other == s ? here : later) = true;
    });
  return here && !later;
}

int64_t tasks_of_piece(const KernelStep& step) {
  return static_cast<int64_t>(kPieceNs / std::clamp(step.cost_per_task, 1.0, kPieceNs));
}

/// Whether attention carries a cache over into the buffer: what it writes of it, it does not read.
bool is_carried(const Step& step, int buffer) {
  const auto* call = std::get_if<ExternStep>(&step.what);
  const auto* attention = call ? std::get_if<extern_kernels::AttentionProblem>(&call->problem) : nullptr;
  return attention && attention->carries &&
         std::any_of(call->outputs.begin() + 1, call->outputs.end(),
                     [&](const OperandView& out) { return out.buffer == buffer; });
}

} // namespace

void Session::Impl::observed_step(size_t s, const StepShape& shape, RunContext& ctx,
                                  const RunOptions& run_options, std::span<const BufferShape> shapes,
                                  Clock::time_point start) const {
  auto since_start = [&] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  };
  const Step& step = plan->steps[s];
  try {
    ctx.stop.check();
  } catch (Error& e) {
    e.set_where(nodes_of(*plan, step.origins));
    throw;
  }
  const bool timed_there = run_options.profile && step.device != DeviceKind::cpu;
  const size_t mark = timed_there ? ctx.device->mark() : 0;
  int64_t begin = run_options.profile ? since_start() : 0;
  run_step(s, shape, ctx, shapes);
  if (timed_there) ctx.timed.push_back({run_options.profile->size(), mark, ctx.device->mark()});
  const int64_t end = run_options.profile ? since_start() : 0;
  if (const auto* call = std::get_if<ExternStep>(&step.what); call && !call->dynamic_outputs.empty()) try {
      take_found(s, ctx);
    } catch (Error& e) {
      e.set_where(nodes_of(*plan, step.origins));
      throw;
    }
  const auto* kernel = std::get_if<KernelStep>(&step.what);
  std::vector<std::pair<int, bool>> touched; // read or written, each once however many operands it is
  if (run_options.profile || run_options.observe) {
    for_each_buffer(step, [&](int b, bool writes) {
      const std::pair touch{b, writes};
      if (std::find(touched.begin(), touched.end(), touch) == touched.end()) touched.push_back(touch);
    });
  }
  if (run_options.profile) {
    StepProfile p{plan, static_cast<int>(s), begin, end - begin, shape.tasks, threads(), 0, ctx.symbols};
    if (kernel) p.threads = std::min(threads(), chunks_of(*kernel, shape.tasks));
    for (auto [b, writes] : touched)
      if (!writes || !is_carried(step, b)) p.bytes += shapes[b].bytes;
    run_options.profile->push_back(p);
  }
  if (run_options.observe && ctx.device) ctx.device->wait();
  if (run_options.observe)
    for (auto [b, writes] : touched)
      if (plan->buffers[b].last_step >= static_cast<int>(s) && is_made_by(*plan, b, s) &&
          plan->buffers[b].storage != StorageKind::input &&
          plan->buffers[b].storage != StorageKind::constant) {
        void* data = ctx.pointers[b];
        std::vector<std::byte> copy;
        if (plan->buffers[b].device != DeviceKind::cpu) {
          copy.resize(static_cast<size_t>(shapes[b].bytes));
          ctx.device->download(copy.data(), data, copy.size());
          ctx.device->wait();
          data = copy.data();
        }
        run_options.observe(*plan, static_cast<int>(s), b,
                            {data, plan->buffers[b].dtype, shapes[b].sizes, shapes[b].strides});
      }
}

void Session::Impl::run_step(size_t s, const StepShape& shape, RunContext& ctx,
                             std::span<const BufferShape> shapes) const {
  const Step& step = plan->steps[s];
  try {
    if (step.device != DeviceKind::cpu) return run_on_device(s, shape, ctx);
    if (ctx.device && ctx.device->has_downloads()) ctx.device->wait(); // the step may read them
    if (const auto* kernel = std::get_if<KernelStep>(&step.what)) {
      const EvaluatedKernel* evaluated = bound->steps[s].kernel.evaluated.get();
      if (evaluated && shape.tasks > 0) // sizes of one that does not run may divide by an extent of 0
        check_evaluated(*kernel, *evaluated, ctx, shapes);
      run_kernel(*kernel, bound->steps[s].kernel, shape, ctx);
    } else {
      run_extern(step, *bound->steps[s].library, shape, ctx);
    }
  } catch (Error& e) {
    e.set_where(nodes_of(*plan, step.origins));
    throw;
  } catch (const std::bad_alloc&) {
    Error e(ErrorKind::model, "there is not enough memory", "smaller inputs or sizes need less");
    e.set_where(nodes_of(*plan, step.origins));
    throw e;
  }
}

int Session::Impl::chunks_of(const KernelStep& step, int64_t tasks) const {
  double total = step.cost_per_task * static_cast<double>(tasks);
  if (step.sequential || tasks < 2 || total < kInlineNs || threads() == 1) return 1;
  int64_t chunks = total > kBalanceNs ? threads() * 4 : threads();
  return static_cast<int>(std::min(chunks, tasks));
}

void Session::Impl::check_evaluated(const KernelStep& step, const EvaluatedKernel& kernel, RunContext& ctx,
                                    std::span<const BufferShape> shapes) const {
  ctx.kernel_rooms.clear();
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    const int b = step.buffers[i];
    ctx.kernel_rooms.push_back(
        b < 0 ? KernelRoom{}
              : KernelRoom{plan->buffers[b].dtype,
                           std::max<int64_t>(0, shapes[b].bytes - step.offset_bytes[i]), step.writes[i]});
  }
  kernel.check(ctx.kernel_rooms, ctx.symbols);
}

void Session::Impl::run_kernel(const KernelStep& step, const Kernel& kernel, const StepShape& shape,
                               RunContext& ctx) const {
  if (shape.tasks <= 0) return;
  ctx.kernel_buffers.clear();
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    auto* memory = static_cast<std::byte*>(step.buffers[i] < 0 ? nullptr : ctx.pointers[step.buffers[i]]);
    ctx.kernel_buffers.push_back(memory ? memory + step.offset_bytes[i] : nullptr);
  }
  int chunks = chunks_of(step, shape.tasks);
  auto* scratch =
      static_cast<std::byte*>(shape.scratch_bytes ? ctx.scratch.get(shape.scratch_bytes * chunks) : nullptr);
  FailedCheck failed; // of the first task that meets one
  std::atomic<bool> has_failed{false};
  auto run_chunk = [&](int chunk) {
    int64_t begin = shape.tasks * chunk / chunks, end = shape.tasks * (chunk + 1) / chunks;
    void* mine = scratch ? scratch + shape.scratch_bytes * chunk : nullptr;
    int64_t code = 0;
    if (kernel.evaluated) {
      StopScope scope(ctx.stop);
      try {
        kernel.evaluated->run(ctx.kernel_buffers, ctx.symbols, begin, end);
      } catch (OriginError& e) {
        if (e.origin >= 0) e.set_where(nodes_of(*plan, {&e.origin, 1}));
        throw;
      }
    }
    // Native code knows no limits: where there are any it gets its work in pieces.
    const int64_t piece = ctx.stop.active() ? tasks_of_piece(step) : end - begin;
    for (int64_t at = begin; kernel.native && at < end && code == 0; at += piece) {
      if (at > begin) ctx.stop.check();
      code = kernel.native(ctx.kernel_buffers.data(), shape.size_args.data(), at, std::min(end, at + piece),
                           mine);
    }
    if (code == 0 || has_failed.exchange(true)) return;
    failed.number = code;
    std::memcpy(&failed.index, mine, sizeof failed.index);
    std::memcpy(&failed.extent, static_cast<std::byte*>(mine) + sizeof failed.index, sizeof failed.extent);
  };
  if (chunks == 1) {
    run_chunk(0);
  } else {
    tbb::parallel_for(0, chunks, run_chunk, tbb::static_partitioner());
  }
  if (has_failed) throw error_of(*plan, step, failed);
}

/// Asks the device for the work; it is done when somebody waits.
void Session::Impl::run_on_device(size_t s, const StepShape& shape, RunContext& ctx) const {
  const Step& step = plan->steps[s];
  DeviceContext& device = *ctx.device;
  if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
    void *from = ctx.pointers[copy->from], *to = ctx.pointers[copy->to];
    if (const int edge = bound->on_device->edges.of_step[s]; edge != kNoEdge) {
      EdgeUse& use = edge >= 0 ? ctx.edges_in[edge] : ctx.edges_out[-1 - edge];
      use.twin = edge >= 0 ? to : from;
      return edge >= 0 ? device.copy_input(use) : device.copy_output(use);
    }
    const auto bytes = static_cast<size_t>(shape.copy_bytes);
    if (plan->buffers[copy->from].device == DeviceKind::cpu)
      device.upload(to, from, bytes);
    else
      device.download(to, from, bytes);
  } else if (const auto* kernel = std::get_if<KernelStep>(&step.what)) {
    ctx.kernel_buffers.clear();
    for (size_t i = 0; i < kernel->buffers.size(); ++i)
      if (kernel->buffers[i] >= 0)
        ctx.kernel_buffers.push_back(static_cast<std::byte*>(ctx.pointers[kernel->buffers[i]]) +
                                     kernel->offset_bytes[i]);
    device.launch(s, shape, ctx.kernel_buffers, ctx.device_work);
  } else {
    run_extern(step, *bound->steps[s].library, shape, ctx);
  }
}

void Session::Impl::find_operands(const std::vector<OperandView>& views,
                                  const std::vector<OperandShape>& shapes, const RunContext& ctx,
                                  std::vector<extern_kernels::TensorRef>& operands) const {
  operands.clear();
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (views[i].buffer < 0) {
      operands.push_back({});
      continue;
    }
    operands.push_back({static_cast<std::byte*>(ctx.pointers[views[i].buffer]) + shapes[i].offset_bytes,
                        plan->buffers[views[i].buffer].dtype, shapes[i].sizes, shapes[i].strides});
  }
}

void Session::Impl::rehearse_kernels(const ShapePlan& shapes, const RunContext& ctx) const {
  std::vector<RehearsedCall> calls;
  for (size_t s = 0; s < plan->steps.size(); ++s) {
    const auto* step = std::get_if<ExternStep>(&plan->steps[s].what);
    const extern_kernels::ExternKernel* kernel = bound->steps[s].library.get();
    if (!step || plan->steps[s].device == DeviceKind::cpu || !kernel->can_rehearse()) continue;
    RehearsedCall& call = calls.emplace_back();
    call.kernel = kernel;
    find_operands(step->inputs, shapes.steps[s].inputs, ctx, call.inputs);
    find_operands(step->outputs, shapes.steps[s].outputs, ctx, call.outputs);
    call.workspace = ctx.device_work;
  }
  rehearse(calls);
}

void Session::Impl::run_extern(const Step& of, const extern_kernels::ExternKernel& library,
                               const StepShape& shape, RunContext& ctx) const {
  const auto& step = std::get<ExternStep>(of.what);
  find_operands(step.inputs, shape.inputs, ctx, ctx.inputs);
  find_operands(step.outputs, shape.outputs, ctx, ctx.outputs);
  if (of.device != DeviceKind::cpu)
    return library.run({ctx.inputs, ctx.outputs, nullptr, ctx.device_work, &ctx.device->stream()});
  void* workspace = shape.workspace_bytes ? ctx.workspace.get(shape.workspace_bytes) : nullptr;
  std::optional<StopScope> scope; // for operators of the host whose work grows faster than their operands
  if (ctx.stop.active()) scope.emplace(ctx.stop);
  int64_t room = memory_limit();
  if (step.dynamic_outputs.empty()) {
    if (options.max_memory > 0) room = std::max<int64_t>(0, options.max_memory - ctx.counted_bytes);
    library.run({ctx.inputs, ctx.outputs, nullptr, workspace, nullptr, room});
    return;
  }
  if (options.max_memory > 0)
    room = std::max<int64_t>(0, options.max_memory - ctx.shapes.arena_bytes - ctx.shapes.device_bytes -
                                    state_bytes(*plan, ctx.symbols) - ctx.made_bytes);
  DynamicAllocator allocator(*plan, step, ctx, pool, room, options.max_memory > 0);
  library.run({ctx.inputs, {}, &allocator, workspace});
  for (int symbol : step.bound_symbols)
    TBX_MODEL(ctx.symbols[symbol] >= 0, "a call does not bind symbol '{}': the plan is damaged",
              plan->symbol_names[symbol]);
}

} // namespace tbx::runtime
