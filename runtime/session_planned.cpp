// A run: one arena, planned per shape signature.
#include "runtime/session_impl.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/budget.h"
#include "base/error.h"
#include "base/watch.h"
#include "runtime/memory.h"
#include "runtime/run_checks.h"

namespace tbx::runtime {
namespace {

/// Shows a sanitizer what of the arena belongs to a buffer while a step runs, and to none.
class Watch {
public:
  Watch(const Executable& plan, const ShapePlan& shapes, const std::byte* arena, int64_t bytes)
      : plan_(plan), shapes_(shapes), arena_(arena), bytes_(bytes), on_(is_watched()) {
    if (on_) forbid(arena_, bytes_);
  }
  ~Watch() {
    if (on_) allow(arena_, bytes_);
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
    for (size_t b = 0; on_ && b < plan_.buffers.size(); ++b) {
      const BufferShape& shape = shapes_.buffers[b];
      if (plan_.buffers[b].*when == static_cast<int>(step) && shape.known && shape.offset >= 0 &&
          shape.offset < bytes_ && plan_.buffers[b].device == DeviceKind::cpu)
        fn(arena_ + shape.offset, shape.bytes);
    }
  }

  const Executable& plan_;
  const ShapePlan& shapes_;
  const std::byte* arena_;
  const int64_t bytes_;
  const bool on_;
};

} // namespace

/// The bytes of a run. Refuses what does not fit before it is allocated, and names the largest tensor.
/// `made_bytes`: what the run has allocated besides.
int64_t Session::Impl::check_memory(const ShapePlan& shapes, std::span<const RunTensor> outputs,
                                    int64_t made_bytes) const {
  int64_t needed = shapes.arena_bytes + made_bytes;
  // What a device lacks it says itself; the limit of a run is for both together, and for what is kept.
  const int64_t kept = options.max_memory > 0 ? state_bytes(*plan, shapes.symbols) : 0;
  if (options.max_memory > 0 && (__builtin_add_overflow(needed, shapes.device_bytes, &needed) ||
                                 __builtin_add_overflow(needed, kept, &needed)))
    needed = INT64_MAX;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int b = plan->outputs[i].buffer;
    if (!outputs[i].data && shapes.buffers[b].known && !facts.made[b] &&
        __builtin_add_overflow(needed, shapes.buffers[b].bytes, &needed))
      needed = INT64_MAX;
  }
  const bool over_limit = options.max_memory > 0 && needed > options.max_memory;
  if (!over_limit && needed <= memory_limit()) return needed;
  size_t largest = plan->buffers.size();
  for (size_t b = 0; b < plan->buffers.size(); ++b) {
    const BufferPlan& p = plan->buffers[b];
    if (p.storage == StorageKind::input || p.storage == StorageKind::constant || p.first_step < 0 ||
        !shapes.buffers[b].known)
      continue;
    if (largest == plan->buffers.size() || shapes.buffers[b].bytes > shapes.buffers[largest].bytes)
      largest = b;
  }
  std::string text =
      over_limit
          ? fmt::format("the run needs {} bytes of memory, the limit is {}", needed, options.max_memory)
          : fmt::format("the run needs {} bytes of memory, the machine has {}", needed, memory_limit());
  std::string where;
  if (kept > 0) text += fmt::format("; {} of them are for the state (option state_capacity)", kept);
  if (largest < plan->buffers.size()) {
    const BufferPlan& p = plan->buffers[largest];
    text += fmt::format("; {} of them are for {} of shape [{}]", shapes.buffers[largest].bytes,
                        p.name.empty() ? "an intermediate tensor" : "'" + p.name + "'",
                        fmt::join(shapes.buffers[largest].sizes, ", "));
    where = nodes_of(*plan, plan->steps[p.first_step].origins);
  }
  Error e(ErrorKind::model, text,
          over_limit ? how_to_raise("max_memory") : "smaller inputs or sizes need less");
  e.set_where(where);
  throw e;
}

/// While the device works: the next run grows by as much as this one did.
void Session::Impl::expect_next(RunContext& ctx) const {
  const std::vector<int64_t>& now = ctx.symbols;
  if (ctx.symbols_before.size() != now.size() || ctx.symbols_before == now) return;
  std::vector<int64_t> next = now;
  for (size_t s = 0; s < now.size(); ++s) next[s] += now[s] - ctx.symbols_before[s];
  for (size_t s = 0; s < now.size(); ++s)
    if (now[s] >= 0 && next[s] < 0) return; // below 0 are those that nobody uses any more
  // Places stay, and so do all sizes that do not grow.
  if (growing.room_of(next) != growing.room_of(now)) return;
  try {
    run_checks(*plan, next, {});
    const std::shared_ptr<const ShapePlan> shapes = shapes_for(next);
    if (shapes->room.empty()) return;
    ctx.device->expect({static_cast<size_t>(bound->on_device->first_recorded),
                        static_cast<size_t>(bound->on_device->last_recorded),
                        [&](size_t s) { run_step(s, shapes->steps[s], ctx, shapes->buffers); }, next,
                        growing.steps, nullptr});
  } catch (const Error& e) { // there is no such run; if it comes after all it says why
    if (e.kind() == ErrorKind::internal) throw;
  }
}

void Session::Impl::run_planned(RunContext& ctx, std::shared_ptr<const ShapePlan> plan_of_run,
                                std::span<RunTensor> outputs, const RunOptions& run_options) const {
  const bool finds = bound->data_dependent;
  int64_t arena_bytes = plan_of_run->arena_bytes;
  if (finds) arena_bytes = begin_finding(ctx, plan_of_run);
  const ShapePlan& shapes = finds ? ctx.shapes : *plan_of_run;
  ctx.counted_bytes = check_memory(shapes, outputs, 0);
  auto* base = static_cast<std::byte*>(ctx.arena.get(arena_bytes));
  std::byte* device_base = ctx.device ? ctx.device->arena(shapes.device_bytes) : nullptr;
  if (ctx.device) ctx.device_work = device_base + shapes.device_work;
  if (finds) ctx.blocks.begin(base, arena_bytes), ctx.device_blocks.begin(device_base, shapes.device_work);
  for (size_t b = 0; b < plan->buffers.size(); ++b)
    if (shapes.buffers[b].known && shapes.buffers[b].offset >= 0)
      ctx.pointers[b] =
          (plan->buffers[b].device == DeviceKind::cpu ? base : device_base) + shapes.buffers[b].offset;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const BufferShape& shape = shapes.buffers[plan->outputs[i].buffer];
    if (!shape.known) continue; // when a step has found its sizes
    if (!outputs[i].data) ctx.made_bytes += shape.bytes;
    place_output(outputs[i], plan->outputs[i], shape, ctx);
  }
  ctx.run_outputs = outputs;
  const auto start = run_options.profile ? Clock::now() : Clock::time_point();
  DeviceContext::Mode mode = DeviceContext::Mode::now;
  {
    const Watch watch(*plan, shapes, base, arena_bytes);
    auto run_one = [&](size_t s) {
      watch.begin(s);
      observed_step(s, shapes.steps[s], ctx, run_options, shapes.buffers, start);
      watch.end(s);
      if (finds)
        for (int b : made_until[s]) let_go(b, ctx);
    };
    size_t done = 0;
    if (ctx.device) {
      const bool recorded =
          bound->on_device->is_recorded() && !finds && !run_options.profile && !run_options.observe;
      mode = place_edges(ctx, shapes, outputs, recorded);
      if (!finds && !ctx.rehearsed) rehearse_kernels(shapes, ctx);
      ctx.rehearsed = true;
      // Attention reads what earlier runs stored before the kernel before it ends.
      const bool keeps_state = std::find(kept.begin(), kept.end(), true) != kept.end();
      if (keeps_state && mode == DeviceContext::Mode::now) ctx.device->part();
      if (recorded) {
        const auto first = static_cast<size_t>(bound->on_device->first_recorded),
                   last = static_cast<size_t>(bound->on_device->last_recorded);
        ctx.device->run(mode, ctx.edges_in, ctx.edges_out,
                        {first, last, run_one, shapes.symbols, growing.steps,
                         [&](size_t s, std::vector<Access>& all) { touched_by(s, ctx, shapes, all); }});
        done = plan->steps.size();
      }
    }
    for (; done < plan->steps.size(); ++done) run_one(done);
  }
  if (mode != DeviceContext::Mode::now && run_options.same) remember(ctx, shapes, outputs, *run_options.same);
  if (mode != DeviceContext::Mode::now && !shapes.room.empty()) {
    plan_of_run.reset(); // nobody else has it: the next run may change it
    expect_next(ctx);
  }
  end_device(ctx, outputs, run_options);
  if (finds) end_finding(ctx);
}

} // namespace tbx::runtime
