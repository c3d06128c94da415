// Runs whose shapes depend on data: memory for each step as it comes.
#include "runtime/session_impl.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "runtime/memory.h"
#include "runtime/run_checks.h"

namespace tbx::runtime {

void Session::Impl::run_dynamic(RunContext& ctx, std::span<RunTensor> outputs,
                                const RunOptions& run_options) const {
  for (size_t i = 0; i < ctx.edges_in.size(); ++i) {
    EdgeUse& use = ctx.edges_in[i];
    if (use.how == EdgeUse::How::kept) ctx.pointers[bound->on_device->edges.inputs[i].twin] = use.memory;
    // Other buffers get their places when they begin to live.
    if (use.how == EdgeUse::How::direct) use.how = EdgeUse::How::copied;
  }
  ctx.dynamic.assign(plan->buffers.size(), nullptr);
  ctx.dynamic_shapes.assign(plan->buffers.size(), {});
  int64_t in_use = options.max_memory > 0 ? state_bytes(*plan) : 0;
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
  const Step& step = plan->steps[s];
  const auto* call = std::get_if<ExternStep>(&step.what);
  auto made_by_kernel = [&](int b) {
    return call && std::find(call->dynamic_outputs.begin(), call->dynamic_outputs.end(), b) !=
                       call->dynamic_outputs.end();
  };
  for (int b : begin_at[s]) {
    if (made_by_kernel(b)) continue;
    const BufferPlan& p = plan->buffers[b];
    ctx.dynamic_shapes[b] = evaluate_buffer(p, ctx.symbols);
    const bool is_output = p.storage == StorageKind::output;
    if (!is_output && p.storage != StorageKind::arena && p.storage != StorageKind::dynamic) continue;
    if (kept[b]) continue;
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
  StepShape shape = evaluate_step(*bound, s, ctx.symbols, ctx.dynamic_shapes);
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
  for (int b : end_at[s])
    if (ctx.dynamic[b] && plan->buffers[b].storage != StorageKind::output) {
      in_use -= ctx.dynamic_shapes[b].bytes;
      ctx.dynamic[b].reset();
    }
}

} // namespace tbx::runtime
