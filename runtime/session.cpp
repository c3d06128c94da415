#include "runtime/session.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/random_streams.h"
#include "base/stop.h"
#include "base/watch.h"
#include "runtime/arena.h"
#include "runtime/block_pool.h"
#include "runtime/device_context.h"
#include "runtime/memory.h"
#include "runtime/run_checks.h"
#include "runtime/shape_plan.h"
#include "runtime/shared_arena.h"

namespace tbx::runtime {
namespace {

constexpr double kInlineNs = 15'000;    ///< a kernel cheaper than this runs on the calling thread
constexpr double kBalanceNs = 200'000;  ///< a kernel dearer than this is cut finer than one chunk per thread
constexpr double kPieceNs = 20'000'000; ///< work between two looks at the time, where it is limited
constexpr size_t kMaxShapePlans = 64;   ///< shape signatures remembered

using Clock = std::chrono::steady_clock;

/// What one run needs besides the plan; reused by later runs.
struct RunContext {
  std::unique_ptr<DeviceContext> device;    ///< of plans with steps of a device; ends last
  std::vector<EdgeUse> edges_in, edges_out; ///< of this run, by place in the signature
  void* device_work = nullptr;              ///< what a step of the device needs to work
  std::shared_ptr<void> device_work_owner;
  Stop stop;
  std::vector<int64_t> symbols;
  std::vector<void*> pointers; ///< per buffer
  std::vector<void*> kernel_buffers;
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

/// Memory of the outputs of one data-dependent extern step.
class DynamicAllocator : public extern_kernels::OutputAllocator {
public:
  DynamicAllocator(const Executable& plan, const ExternStep& step, RunContext& ctx, BlockPool& pool,
                   int64_t max_memory)
      : plan_(plan), step_(step), ctx_(ctx), pool_(pool), max_memory_(max_memory) {}
  void* allocate(int index, DType dtype, std::span<const int64_t> sizes) override {
    TBX_INTERNAL(index >= 0 && index < static_cast<int>(step_.dynamic_outputs.size()));
    int buffer = step_.dynamic_outputs[index];
    TBX_INTERNAL(buffer >= 0 && plan_.buffers[buffer].dtype == dtype);
    const std::vector<int>& dims = step_.dynamic_dims[index];
    TBX_INTERNAL(dims.size() == sizes.size());
    for (size_t d = 0; d < dims.size(); ++d)
      if (dims[d] >= 0) ctx_.symbols[dims[d]] = sizes[d];
    const int64_t n = checked_numel(sizes), limit = max_memory_ > 0 ? max_memory_ : memory_limit();
    TBX_MODEL(n <= limit / std::max<int64_t>(1, size_of(dtype)),
              "output {} would have the shape [{}], the limit of memory is {} bytes", index,
              fmt::join(sizes, ", "), limit);
    ctx_.dynamic[buffer] = pool_.get(n * size_of(dtype));
    return ctx_.pointers[buffer] = ctx_.dynamic[buffer].get();
  }

private:
  const Executable& plan_;
  const ExternStep& step_;
  RunContext& ctx_;
  BlockPool& pool_;
  int64_t max_memory_;
};

/// Shows a sanitizer what of the arena belongs to a buffer while a step runs, and to none.
class Watch {
public:
  Watch(const Executable& plan, const ShapePlan& shapes, const std::byte* arena)
      : plan_(plan), shapes_(shapes), arena_(arena), on_(is_watched()) {
    if (on_) forbid(arena_, shapes_.arena_bytes);
  }
  ~Watch() {
    if (on_) allow(arena_, shapes_.arena_bytes);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void begin(size_t step) const {
    each(step, &BufferPlan::first_step, [](const std::byte* p, int64_t bytes) { allow(p, bytes); });
  }
  void end(size_t step) const {
    each(step, &BufferPlan::last_step, [](const std::byte* p, int64_t bytes) { forbid(p, bytes); });
  }

private:
  template <class F> void each(size_t step, int BufferPlan::*when, F&& fn) const {
    for (size_t b = 0; on_ && b < plan_.buffers.size(); ++b)
      if (plan_.buffers[b].*when == static_cast<int>(step) && shapes_.buffers[b].offset >= 0)
        fn(arena_ + shapes_.buffers[b].offset, shapes_.buffers[b].bytes);
  }

  const Executable& plan_;
  const ShapePlan& shapes_;
  const std::byte* arena_;
  const bool on_;
};

/// Memory of the caller's that is said to be the device's.
void check_place(const BoundExecutable& bound, const char* what, const std::string& name, const void* data,
                 int64_t bytes) {
  if (!bound.on_device)
    throw Error(ErrorKind::model,
                fmt::format("{} '{}' is in memory of a GPU, and the model runs on the CPU alone", what, name),
                "copy it to the host, or compile with the option device");
  const std::string defect = bound.on_device->device->defect_of(data, static_cast<size_t>(bytes));
  TBX_MODEL(defect.empty(), "{} '{}' is not memory of cuda:{}, where the model runs: {}", what, name,
            bound.on_device->device->properties().number, defect);
}

int64_t bytes_of(const RunTensor& t) { return checked_numel(t.dims) * size_of(t.dtype); }

} // namespace

const void* host_elements(const RunTensor& tensor) {
  if (!tensor.on_device) return tensor.data;
  TBX_INTERNAL(tensor.host_copy != nullptr);
  return tensor.host_copy->get();
}

struct Session::Impl {
  std::shared_ptr<const BoundExecutable> bound;
  const Executable* plan = nullptr; ///< the one that is bound
  SessionOptions options;
  int threads = 1;
  std::shared_ptr<Arena> arena;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<RunContext>> idle;
  mutable std::vector<std::shared_ptr<const ShapePlan>> shape_plans;
  mutable BlockPool pool;
  mutable std::unique_ptr<OutputPool> device_pool; ///< of outputs on the device

  std::shared_ptr<const ShapePlan> shapes_for(const std::vector<int64_t>& symbols) const;
  void run(RunContext& ctx, std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
           const RunOptions& options) const;
  void end_device(RunContext& ctx, std::span<RunTensor> outputs, const RunOptions& options) const;
  void take_device_inputs(RunContext& ctx, std::span<const RunTensor> inputs) const;
  void refuse_async(std::span<const RunTensor> outputs) const;
  DeviceContext::Mode place_edges(RunContext& ctx, const ShapePlan& shapes, std::span<RunTensor> outputs,
                                  bool recorded) const;
  void check_memory(const ShapePlan& shapes, std::span<const RunTensor> outputs) const;
  void run_planned(RunContext& ctx, const ShapePlan& shapes, std::span<RunTensor> outputs,
                   const RunOptions& options) const;
  void run_dynamic(RunContext& ctx, std::span<RunTensor> outputs, const RunOptions& options) const;
  void run_dynamic_step(size_t s, RunContext& ctx, std::span<RunTensor> outputs,
                        const RunOptions& run_options, int64_t& in_use, Clock::time_point start) const;
  void place_output(RunTensor& out, const SignatureEntry& entry, const BufferShape& shape,
                    RunContext& ctx) const;
  void run_step(size_t s, const StepShape& shape, RunContext& ctx) const;
  void run_kernel(const KernelStep& step, const Kernel& kernel, const StepShape& shape,
                  RunContext& ctx) const;
  void run_on_device(size_t s, const StepShape& shape, RunContext& ctx) const;
  void run_extern(const Step& step, const extern_kernels::ExternKernel& library, const StepShape& shape,
                  RunContext& ctx) const;
  int chunks_of(const KernelStep& step, int64_t tasks) const;
  template <class BufferShapes>
  void observed_step(size_t s, const StepShape& shape, RunContext& ctx, const RunOptions& options,
                     const BufferShapes& shapes, Clock::time_point start) const;
};

std::shared_ptr<const ShapePlan> Session::Impl::shapes_for(const std::vector<int64_t>& symbols) const {
  {
    std::lock_guard lock(mutex);
    for (const auto& p : shape_plans)
      if (p->symbols == symbols) return p;
  }
  auto made = std::make_shared<const ShapePlan>(make_shape_plan(*bound, symbols));
  std::lock_guard lock(mutex);
  if (shape_plans.size() >= kMaxShapePlans) shape_plans.erase(shape_plans.begin());
  shape_plans.push_back(made);
  return made;
}

void Session::Impl::place_output(RunTensor& out, const SignatureEntry& entry, const BufferShape& shape,
                                 RunContext& ctx) const {
  // The buffer of a complex output has the parts as a dimension of their own.
  const std::span<const int64_t> sizes{shape.sizes.data(),
                                       shape.sizes.size() - (is_complex(entry.dtype) ? 1 : 0)};
  if (out.data) {
    TBX_MODEL(out.dtype == entry.dtype, "output '{}' has type {}, expected {}", entry.name,
              name_of(out.dtype), name_of(entry.dtype));
    TBX_MODEL(std::equal(out.dims.begin(), out.dims.end(), sizes.begin(), sizes.end()),
              "output '{}' has shape [{}], expected [{}]", entry.name, fmt::join(out.dims, ", "),
              fmt::join(sizes, ", "));
    if (out.on_device) check_place(*bound, "output", entry.name, out.data, shape.bytes);
  } else if (out.on_device) {
    out.block = device_pool->get(static_cast<size_t>(shape.bytes), ctx.device->stream());
    out.owner = out.block;
    out.data = out.block->data();
    out.dtype = entry.dtype;
    out.dims.assign(sizes.begin(), sizes.end());
  } else {
    out.owner = pool.get(shape.bytes);
    out.data = out.owner.get();
    out.dtype = entry.dtype;
    out.dims.assign(sizes.begin(), sizes.end());
  }
  if (!out.on_device) {
    ctx.pointers[entry.buffer] = out.data;
    return;
  }
  // Where the host makes it, there is a place for it on the host, too, until the end of the run.
  const auto o = static_cast<size_t>(&entry - plan->outputs.data());
  if (bound->on_device->edges.outputs[o].twin >= 0) return;
  ctx.made_on_host.push_back({o, pool.get(shape.bytes), shape.bytes});
  ctx.pointers[entry.buffer] = ctx.made_on_host.back().memory.get();
}

void Session::Impl::run(RunContext& ctx, std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                        const RunOptions& run_options) const {
  TBX_MODEL(outputs.size() == plan->outputs.size(), "{} outputs given, the model has {}", outputs.size(),
            plan->outputs.size());
  ctx.stop = {run_options.cancel, run_options.time_limit_ms,
              run_options.started ? *run_options.started : Clock::now()};
  bind_symbols(*plan, inputs, ctx.symbols);
  check_inputs(*plan, inputs, ctx.symbols);
  ctx.pointers.assign(plan->buffers.size(), nullptr);
  for (size_t b = 0; b < plan->buffers.size(); ++b) {
    const BufferPlan& p = plan->buffers[b];
    if (p.storage == StorageKind::input && !inputs[p.index].on_device) ctx.pointers[b] = inputs[p.index].data;
    if (p.storage == StorageKind::constant)
      ctx.pointers[b] =
          p.device == DeviceKind::cpu ? bound->constants[p.index] : bound->on_device->constants[p.index];
  }
  if (bound->on_device) {
    if (!ctx.device) ctx.device = std::make_unique<DeviceContext>(*bound);
    if (run_options.async) refuse_async(outputs);
    ctx.device->begin(run_options.stream);
    ctx.timed.clear();
    ctx.made_on_host.clear();
  }
  take_device_inputs(ctx, inputs);
  if (bound->data_dependent) return run_dynamic(ctx, outputs, run_options);
  run_planned(ctx, *shapes_for(ctx.symbols), outputs, run_options);
}

/// What cannot run without the host waiting.
void Session::Impl::refuse_async(std::span<const RunTensor> outputs) const {
  const BoundDevice& on = *bound->on_device;
  if (bound->data_dependent || !on.is_recorded()) {
    for (const Step& step : plan->steps)
      if (step.device == DeviceKind::cpu) {
        Error e(ErrorKind::unsupported, "the host has work in every run, which cannot be asynchronous",
                "use run; `tbx explain` has the steps on the host");
        e.set_where(nodes_of(*plan, step.origins));
        throw e;
      }
    throw_unsupported("the host has work in every run, which cannot be asynchronous");
  }
  for (size_t o = 0; o < outputs.size(); ++o)
    TBX_MODEL(outputs[o].on_device, "output '{}' of an asynchronous run is memory of the host",
              plan->outputs[o].name);
}

/// How inputs meet their buffers on the device, and a copy on the host for steps there.
void Session::Impl::take_device_inputs(RunContext& ctx, std::span<const RunTensor> inputs) const {
  ctx.edges_in.assign(inputs.size(), {});
  ctx.edges_out.assign(plan->outputs.size(), {});
  for (size_t i = 0; i < inputs.size(); ++i) {
    const RunTensor& t = inputs[i];
    if (!t.on_device && !bound->on_device) continue;
    const int64_t bytes = bytes_of(t);
    if (t.on_device) check_place(*bound, "input", plan->inputs[i].name, t.data, bytes);
    const PlanEdge& edge = bound->on_device->edges.inputs[i];
    if (t.on_device && edge.on_host)
      ctx.pointers[plan->inputs[i].buffer] = const_cast<void*>(host_elements(t));
    ctx.edges_in[i] = {way_of(edge, t.on_device, t.data, static_cast<size_t>(bytes)), t.data, nullptr,
                       static_cast<size_t>(bytes)};
  }
}

/// How outputs meet theirs, and all those buffers' places. `recorded`: work that is replayed as a graph.
DeviceContext::Mode Session::Impl::place_edges(RunContext& ctx, const ShapePlan& shapes,
                                               std::span<RunTensor> outputs, bool recorded) const {
  const PlanEdges& edges = bound->on_device->edges;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto bytes = static_cast<size_t>(shapes.buffers[plan->outputs[o].buffer].bytes);
    ctx.edges_out[o] = {way_of(edges.outputs[o], outputs[o].on_device, outputs[o].data, bytes),
                        outputs[o].data, nullptr, bytes};
  }
  copy_what_overlaps(ctx.edges_in, ctx.edges_out);
  const DeviceContext::Mode mode =
      recorded ? ctx.device->choose(shapes.symbols, ctx.edges_in, ctx.edges_out) : DeviceContext::Mode::now;
  auto place = [&](const std::vector<PlanEdge>& of, std::vector<EdgeUse>& uses) {
    for (size_t i = 0; i < uses.size(); ++i) {
      if (of[i].twin < 0) continue;
      void*& at = ctx.pointers[of[i].twin];
      if (uses[i].how == EdgeUse::How::direct) at = uses[i].memory;
      uses[i].twin = at;
    }
  };
  place(edges.inputs, ctx.edges_in);
  place(edges.outputs, ctx.edges_out);
  return mode;
}

/// Refuses what does not fit before anything is allocated, and names the largest tensor.
void Session::Impl::check_memory(const ShapePlan& shapes, std::span<const RunTensor> outputs) const {
  int64_t needed = shapes.arena_bytes;
  // What a device lacks it says itself; the limit of a run is for both together.
  if (options.max_memory > 0 && __builtin_add_overflow(needed, shapes.device_bytes, &needed))
    needed = INT64_MAX;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].data &&
        __builtin_add_overflow(needed, shapes.buffers[plan->outputs[i].buffer].bytes, &needed))
      needed = INT64_MAX;
  const bool over_limit = options.max_memory > 0 && needed > options.max_memory;
  if (!over_limit && needed <= memory_limit()) return;
  size_t largest = plan->buffers.size();
  for (size_t b = 0; b < plan->buffers.size(); ++b) {
    const BufferPlan& p = plan->buffers[b];
    if (p.storage == StorageKind::input || p.storage == StorageKind::constant || p.first_step < 0) continue;
    if (largest == plan->buffers.size() || shapes.buffers[b].bytes > shapes.buffers[largest].bytes)
      largest = b;
  }
  std::string text =
      over_limit
          ? fmt::format("the run needs {} bytes of memory, the limit is {}", needed, options.max_memory)
          : fmt::format("the run needs {} bytes of memory, the machine has {}", needed, memory_limit());
  std::string where;
  if (largest < plan->buffers.size()) {
    const BufferPlan& p = plan->buffers[largest];
    text += fmt::format("; {} of them are for {} of shape [{}]", shapes.buffers[largest].bytes,
                        p.name.empty() ? "an intermediate tensor" : "'" + p.name + "'",
                        fmt::join(shapes.buffers[largest].sizes, ", "));
    where = nodes_of(*plan, plan->steps[p.first_step].origins);
  }
  Error e(ErrorKind::model, text, "smaller inputs or sizes need less");
  e.set_where(where);
  throw e;
}

void Session::Impl::run_planned(RunContext& ctx, const ShapePlan& shapes, std::span<RunTensor> outputs,
                                const RunOptions& run_options) const {
  check_memory(shapes, outputs);
  auto* base = static_cast<std::byte*>(ctx.arena.get(shapes.arena_bytes));
  std::byte* device_base = ctx.device ? ctx.device->arena(shapes.device_bytes) : nullptr;
  if (ctx.device) ctx.device_work = device_base + shapes.device_work;
  for (size_t b = 0; b < plan->buffers.size(); ++b)
    if (shapes.buffers[b].offset >= 0)
      ctx.pointers[b] =
          (plan->buffers[b].device == DeviceKind::cpu ? base : device_base) + shapes.buffers[b].offset;
  for (size_t i = 0; i < outputs.size(); ++i)
    place_output(outputs[i], plan->outputs[i], shapes.buffers[plan->outputs[i].buffer], ctx);
  auto start = Clock::now();
  const Watch watch(*plan, shapes, base);
  auto run_steps = [&](size_t first, size_t last) {
    for (size_t s = first; s < last; ++s) {
      watch.begin(s);
      observed_step(s, shapes.steps[s], ctx, run_options, shapes.buffers, start);
      watch.end(s);
    }
  };
  size_t done = 0;
  if (ctx.device) {
    const bool recorded = bound->on_device->is_recorded() && !run_options.profile && !run_options.observe;
    const DeviceContext::Mode mode = place_edges(ctx, shapes, outputs, recorded);
    if (recorded) {
      const auto first = static_cast<size_t>(bound->on_device->first_recorded),
                 last = static_cast<size_t>(bound->on_device->last_recorded);
      ctx.device->run(mode, ctx.edges_in, ctx.edges_out, [&] { run_steps(first, last); });
      done = plan->steps.size();
    }
  }
  run_steps(done, plan->steps.size());
  end_device(ctx, outputs, run_options);
}

/// Waits for the device, and for the times it took.
void Session::Impl::end_device(RunContext& ctx, std::span<RunTensor> outputs,
                               const RunOptions& run_options) const {
  if (!ctx.device) return;
  if (run_options.async) {
    for (RunTensor& out : outputs)
      if (out.block) out.block->made_on(ctx.device->stream().handle());
    return ctx.device->leave();
  }
  if (!ctx.made_on_host.empty()) ctx.device->wait();
  for (const RunContext::MadeOnHost& made : ctx.made_on_host)
    ctx.device->upload(outputs[made.output].data, made.memory.get(), static_cast<size_t>(made.bytes));
  ctx.device->wait();
  ctx.made_on_host.clear();
  for (const RunContext::Timed& t : ctx.timed) {
    StepProfile& p = (*run_options.profile)[t.entry];
    p.start_ns = ctx.device->elapsed_ns(0, t.begin);
    p.duration_ns = ctx.device->elapsed_ns(t.begin, t.end);
  }
}

void Session::Impl::run_dynamic(RunContext& ctx, std::span<RunTensor> outputs,
                                const RunOptions& run_options) const {
  for (EdgeUse& use : ctx.edges_in) // buffers get their places when they begin to live
    if (use.how == EdgeUse::How::direct) use.how = EdgeUse::How::copied;
  ctx.dynamic.assign(plan->buffers.size(), nullptr);
  ctx.dynamic_shapes.assign(plan->buffers.size(), {});
  int64_t in_use = 0;
  auto start = Clock::now();
  for (size_t s = 0; s < plan->steps.size(); ++s) {
    try {
      run_dynamic_step(s, ctx, outputs, run_options, in_use, start);
    } catch (Error& e) {
      e.set_where(nodes_of(*plan, plan->steps[s].origins));
      throw;
    }
  }
  end_device(ctx, outputs, run_options);
  ctx.dynamic.clear();
}

/// Memory for what step `s` makes, the step, and the end of what it was the last to read.
void Session::Impl::run_dynamic_step(size_t s, RunContext& ctx, std::span<RunTensor> outputs,
                                     const RunOptions& run_options, int64_t& in_use,
                                     Clock::time_point start) const {
  const size_t n = plan->buffers.size();
  const Step& step = plan->steps[s];
  const auto* call = std::get_if<ExternStep>(&step.what);
  auto made_by_kernel = [&](int b) {
    return call && std::find(call->dynamic_outputs.begin(), call->dynamic_outputs.end(), b) !=
                       call->dynamic_outputs.end();
  };
  for (size_t b = 0; b < n; ++b) {
    const BufferPlan& p = plan->buffers[b];
    if (p.first_step != static_cast<int>(s) || made_by_kernel(static_cast<int>(b))) continue;
    ctx.dynamic_shapes[b] = evaluate_buffer(p, ctx.symbols);
    const bool is_output = p.storage == StorageKind::output;
    if (!is_output && p.storage != StorageKind::arena && p.storage != StorageKind::dynamic) continue;
    if (!is_output || !outputs[p.index].data) {
      in_use += ctx.dynamic_shapes[b].bytes;
      TBX_MODEL(options.max_memory <= 0 || in_use <= options.max_memory,
                "the run needs more than the limit of {} bytes of memory", options.max_memory);
      TBX_MODEL(in_use <= memory_limit(), "the run needs more than the {} bytes of memory of the machine",
                memory_limit());
    }
    if (is_output) {
      RunTensor& out = outputs[p.index];
      place_output(out, plan->outputs[p.index], ctx.dynamic_shapes[b], ctx);
      if (!ctx.device) continue;
      const auto bytes = static_cast<size_t>(ctx.dynamic_shapes[b].bytes);
      EdgeUse::How how = way_of(bound->on_device->edges.outputs[p.index], out.on_device, out.data, bytes);
      if (how == EdgeUse::How::direct) how = EdgeUse::How::copied; // the steps before have a place already
      ctx.edges_out[p.index] = {how, out.data, nullptr, bytes};
    } else {
      const int64_t bytes = ctx.dynamic_shapes[b].bytes;
      ctx.dynamic[b] =
          p.device == DeviceKind::cpu ? pool.get(bytes) : ctx.device->pool().get(static_cast<size_t>(bytes));
      ctx.pointers[b] = ctx.dynamic[b].get();
    }
  }
  StepShape shape = evaluate_step(*bound, s, ctx.symbols);
  if (step.device != DeviceKind::cpu) {
    ctx.device_work_owner =
        ctx.device->pool().get(static_cast<size_t>(std::max(shape.scratch_bytes, shape.workspace_bytes)));
    ctx.device_work = ctx.device_work_owner.get();
  }
  observed_step(s, shape, ctx, run_options, ctx.dynamic_shapes, start);
  if (call && !call->bound_symbols.empty()) run_checks(*plan, ctx.symbols, call->bound_symbols);
  if (call)
    for (int b : call->dynamic_outputs) {
      const BufferPlan& p = plan->buffers[b];
      ctx.dynamic_shapes[b] = evaluate_buffer(p, ctx.symbols);
      if (p.storage != StorageKind::output) continue;
      // The kernel made the output: hand its memory over, or copy it where the caller wants it.
      RunTensor& out = outputs[p.index];
      if (out.on_device) {
        place_output(out, plan->outputs[p.index], ctx.dynamic_shapes[b], ctx);
        ctx.made_on_host.back().memory = ctx.dynamic[b];
      } else if (out.data) {
        std::shared_ptr<void> made = ctx.dynamic[b];
        place_output(out, plan->outputs[p.index], ctx.dynamic_shapes[b], ctx);
        std::copy_n(static_cast<std::byte*>(made.get()), ctx.dynamic_shapes[b].bytes,
                    static_cast<std::byte*>(out.data));
      } else {
        out.owner = ctx.dynamic[b];
        out.data = out.owner.get();
        out.dtype = plan->outputs[p.index].dtype;
        out.dims = ctx.dynamic_shapes[b].sizes;
        if (is_complex(out.dtype)) out.dims.pop_back();
      }
    }
  for (size_t b = 0; b < n; ++b)
    if (plan->buffers[b].last_step == static_cast<int>(s) && ctx.dynamic[b] &&
        plan->buffers[b].storage != StorageKind::output) {
      in_use -= ctx.dynamic_shapes[b].bytes;
      ctx.dynamic[b].reset();
    }
}

template <class BufferShapes>
void Session::Impl::observed_step(size_t s, const StepShape& shape, RunContext& ctx,
                                  const RunOptions& run_options, const BufferShapes& shapes,
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
  run_step(s, shape, ctx);
  if (timed_there) ctx.timed.push_back({run_options.profile->size(), mark, ctx.device->mark()});
  const auto* kernel = std::get_if<KernelStep>(&step.what);
  std::vector<int> touched;
  if (run_options.profile || run_options.observe) {
    for_each_buffer(step, [&](int b, bool) { touched.push_back(b); });
  }
  if (run_options.profile) {
    StepProfile p{plan, static_cast<int>(s), begin, since_start() - begin, shape.tasks, threads, 0};
    if (kernel) p.threads = std::min(threads, chunks_of(*kernel, shape.tasks));
    for (int b : touched) p.bytes += shapes[b].bytes;
    run_options.profile->push_back(p);
  }
  if (run_options.observe && ctx.device) ctx.device->wait();
  if (run_options.observe)
    for (int b : touched)
      if (plan->buffers[b].last_step >= static_cast<int>(s) &&
          plan->buffers[b].first_step == static_cast<int>(s) &&
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

void Session::Impl::run_step(size_t s, const StepShape& shape, RunContext& ctx) const {
  const Step& step = plan->steps[s];
  try {
    if (step.device != DeviceKind::cpu) return run_on_device(s, shape, ctx);
    if (ctx.device && ctx.device->has_downloads()) ctx.device->wait(); // the step may read them
    if (const auto* kernel = std::get_if<KernelStep>(&step.what))
      run_kernel(*kernel, bound->steps[s].kernel, shape, ctx);
    else
      run_extern(step, *bound->steps[s].library, shape, ctx);
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
  if (threads == 1 || step.sequential || tasks < 2 || total < kInlineNs) return 1;
  int64_t chunks = total > kBalanceNs ? threads * 4 : threads;
  return static_cast<int>(std::min(chunks, tasks));
}

int64_t tasks_of_piece(const KernelStep& step) {
  return static_cast<int64_t>(kPieceNs / std::clamp(step.cost_per_task, 1.0, kPieceNs));
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
  std::atomic<int64_t> failed{0};
  int64_t outside[2] = {}; // the index that failed, and the extent of its axis
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
    int64_t none = 0;
    if (code != 0 && failed.compare_exchange_strong(none, code)) std::memcpy(outside, mine, sizeof outside);
  };
  if (chunks == 1) {
    run_chunk(0);
  } else {
    tbb::parallel_for(0, chunks, run_chunk, tbb::static_partitioner());
  }
  if (failed.load() != 0) {
    Error e(ErrorKind::model, fmt::format("index {} is outside an axis of size {}", outside[0], outside[1]));
    const auto check = static_cast<size_t>(failed.load() - 1);
    if (check < step.check_origins.size() && step.check_origins[check] >= 0)
      e.set_where(nodes_of(*plan, {&step.check_origins[check], 1}));
    throw e;
  }
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

void Session::Impl::run_extern(const Step& of, const extern_kernels::ExternKernel& library,
                               const StepShape& shape, RunContext& ctx) const {
  const auto& step = std::get<ExternStep>(of.what);
  auto refs = [&](const std::vector<OperandView>& views, const std::vector<OperandShape>& shapes,
                  auto& list) {
    list.clear();
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (views[i].buffer < 0) {
        list.push_back({});
        continue;
      }
      list.push_back({static_cast<std::byte*>(ctx.pointers[views[i].buffer]) + shapes[i].offset_bytes,
                      plan->buffers[views[i].buffer].dtype, shapes[i].sizes, shapes[i].strides});
    }
  };
  refs(step.inputs, shape.inputs, ctx.inputs);
  refs(step.outputs, shape.outputs, ctx.outputs);
  if (of.device != DeviceKind::cpu)
    return library.run({ctx.inputs, ctx.outputs, nullptr, ctx.device_work, &ctx.device->stream()});
  void* workspace = shape.workspace_bytes ? ctx.workspace.get(shape.workspace_bytes) : nullptr;
  if (step.dynamic_outputs.empty()) {
    library.run({ctx.inputs, ctx.outputs, nullptr, workspace});
    return;
  }
  DynamicAllocator allocator(*plan, step, ctx, pool, options.max_memory);
  library.run({ctx.inputs, {}, &allocator, workspace});
  for (int symbol : step.bound_symbols) TBX_INTERNAL(ctx.symbols[symbol] >= 0);
}

Session::Session(std::shared_ptr<const BoundExecutable> bound, SessionOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->bound = std::move(bound);
  impl_->plan = impl_->bound->executable.get();
  impl_->options = options;
  impl_->arena = arena_for(options);
  if (impl_->bound->on_device)
    impl_->device_pool = std::make_unique<OutputPool>(impl_->bound->on_device->device);
  impl_->threads = impl_->arena->threads();
}

Session::~Session() = default;
int Session::threads() const { return impl_->threads; }

void Session::run(std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                  const RunOptions& options) const {
  std::unique_ptr<RunContext> ctx;
  {
    std::lock_guard lock(impl_->mutex);
    if (!impl_->idle.empty()) {
      ctx = std::move(impl_->idle.back());
      impl_->idle.pop_back();
    }
  }
  if (!ctx) {
    ctx = std::make_unique<RunContext>();
    if (impl_->threads == 1) ctx->own_arena = std::make_unique<Arena>(1);
  }
  Arena& arena = ctx->own_arena ? *ctx->own_arena : *impl_->arena;
  arena.execute([&] {
    RandomScope random(options.random);
    impl_->run(*ctx, inputs, outputs, options);
  });
  std::lock_guard lock(impl_->mutex);
  impl_->idle.push_back(std::move(ctx));
}

int64_t Session::peak_bytes(std::span<const RunTensor> inputs) const {
  std::vector<int64_t> symbols;
  bind_symbols(*impl_->plan, inputs, symbols);
  check_inputs(*impl_->plan, inputs, symbols);
  if (impl_->bound->data_dependent) throw_unsupported("the memory of this model depends on its data");
  const auto shapes = impl_->shapes_for(symbols);
  return shapes->arena_bytes + shapes->device_bytes;
}

void Session::synchronize() const {
  std::vector<std::unique_ptr<RunContext>> all;
  {
    std::lock_guard lock(impl_->mutex);
    all.swap(impl_->idle);
  }
  std::exception_ptr failed;
  for (const auto& ctx : all) try {
      if (ctx->device) ctx->device->settle();
    } catch (const std::exception&) {
      if (!failed) failed = std::current_exception();
    }
  std::lock_guard lock(impl_->mutex);
  for (auto& ctx : all) impl_->idle.push_back(std::move(ctx));
  if (failed) std::rethrow_exception(failed);
}

void Session::release_memory() const {
  impl_->pool.clear();
  if (impl_->device_pool) impl_->device_pool->clear();
  std::lock_guard lock(impl_->mutex);
  impl_->idle.clear();
}

} // namespace tbx::runtime
