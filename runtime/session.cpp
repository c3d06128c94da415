#include "runtime/session_impl.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "base/error.h"
#include "base/random_streams.h"
#include "runtime/run_checks.h"
#include "runtime/shared_arena.h"

namespace tbx::runtime {
namespace {

constexpr size_t kMaxShapePlans = 64; ///< shape signatures remembered

} // namespace

const void* host_elements(const RunTensor& tensor) {
  if (!tensor.on_device) return tensor.data;
  TBX_INTERNAL(tensor.host_copy != nullptr);
  return tensor.host_copy->get();
}

/// Those of an earlier run of these sizes, or nullptr.
std::shared_ptr<const ShapePlan> Session::Impl::known_shapes(const std::vector<int64_t>& symbols) const {
  std::lock_guard lock(mutex);
  for (const auto& p : shape_plans)
    if (p->symbols == symbols) return p;
  return nullptr;
}

/// No step of a run asks for other threads. `shape_of` gives the sizes of a step.
template <class ShapeOf> bool Session::Impl::stays_with_caller(ShapeOf&& shape_of) const {
  for (size_t s = 0; s < plan->steps.size(); ++s) {
    const Step& step = plan->steps[s];
    const auto* kernel = std::get_if<KernelStep>(&step.what);
    const auto* call = std::get_if<ExternStep>(&step.what);
    if (step.device != DeviceKind::cpu || (call && !call->dynamic_outputs.empty())) return false;
    const extern_kernels::ExternKernel* library = bound->steps[s].library.get();
    if (!kernel && !library) return false;
    const StepShape& shape = shape_of(s);
    if (kernel && chunks_of(*kernel, shape.tasks) > 1) return false;
    if (kernel) continue;
    const CallRefs refs = refs_of(*plan, *call, shape);
    if (!library->is_serial(refs.inputs, refs.outputs)) return false;
  }
  return true;
}

/// The same before there are shapes: to make them may take threads, too.
bool Session::Impl::will_stay_with_caller(const std::vector<int64_t>& symbols) const {
  try {
    StepShape shape;
    return stays_with_caller(
        [&](size_t s) -> const StepShape& { return shape = sizes_of_step(*plan, s, symbols); });
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return false; // whoever makes them says what is wrong
  }
}

std::shared_ptr<const ShapePlan> Session::Impl::shapes_for(const std::vector<int64_t>& symbols) const {
  const std::vector<int64_t> room = growing.any() ? growing.room_of(symbols) : std::vector<int64_t>();
  std::shared_ptr<const ShapePlan> previous;
  std::shared_ptr<ShapePlan> made;
  {
    std::lock_guard lock(mutex);
    for (const auto& p : shape_plans) // another run may have made them meanwhile
      if (p->symbols == symbols) return p;
    auto is_free = [&](const auto& p) { return !room.empty() && p->room == room && p.use_count() == 1; };
    if (auto it = std::find_if(shape_plans.begin(), shape_plans.end(), is_free); it != shape_plans.end()) {
      std::atomic_thread_fence(std::memory_order_acquire); // who had it has read it
      made = std::move(*it);
      shape_plans.erase(it);
    }
    if (!shape_plans.empty()) previous = shape_plans.back();
  }
  if (made && !move_shape_plan(*bound, *made, symbols, growing.buffers, growing.steps)) made.reset();
  if (!made && growing.any()) made = shapes_with_room(symbols);
  if (!made) made = std::make_shared<ShapePlan>(make_shape_plan(*bound, symbols, facts, previous.get()));
  made->stays_with_caller = stays_with_caller([&](size_t s) -> const StepShape& { return made->steps[s]; });
  std::lock_guard lock(mutex);
  if (shape_plans.size() >= kMaxShapePlans) shape_plans.erase(shape_plans.begin());
  shape_plans.push_back(made);
  return made;
}

/// Places for sizes that grow, and the sizes of a run in them. None where there is not so much memory, or the
/// larger sizes are none that the model could have.
std::shared_ptr<ShapePlan> Session::Impl::shapes_with_room(const std::vector<int64_t>& symbols) const {
  auto made = std::make_shared<ShapePlan>();
  try {
    std::vector<int64_t> room = growing.room_of(symbols);
    // Not what another plan left: recorded work relies on the same places for the same sizes.
    make_shape_plan(*bound, symbols, facts); // checks the operands of this run
    *made = make_shape_plan(*bound, room, facts, nullptr, Operands::unchecked);
    made->room = std::move(room);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal) throw;
    return nullptr;
  }
  int64_t bytes = made->arena_bytes + made->device_bytes + state_bytes(*plan, symbols);
  for (const SignatureEntry& out : plan->outputs) bytes += made->buffers[out.buffer].bytes;
  if (options.max_memory > 0 && bytes > options.max_memory) return nullptr;
  return move_shape_plan(*bound, *made, symbols, growing.buffers, growing.steps) ? made : nullptr;
}

/// Checks what a run is given, and puts inputs and constants into their buffers.
void Session::Impl::begin(RunContext& ctx, std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                          const RunOptions& run_options) const {
  TBX_MODEL(outputs.size() == plan->outputs.size(), "{} outputs given, the model has {}", outputs.size(),
            plan->outputs.size());
  ctx.stop = {
      .cancel = run_options.cancel, .limit_ms = run_options.time_limit_ms, .asked = run_options.asked};
  if (ctx.stop.active()) ctx.stop.start = run_options.started ? *run_options.started : Clock::now();
  ctx.symbols_before.swap(ctx.symbols);
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
  ctx.kept_inputs.clear();
  keep_from_outputs(ctx, inputs, outputs);
}

void Session::Impl::run(RunContext& ctx, std::shared_ptr<const ShapePlan> shapes,
                        std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                        const RunOptions& run_options) const {
  if (bound->on_device) {
    if (!ctx.device) ctx.device = std::make_unique<DeviceContext>(*bound, options.log);
    if (run_options.async) refuse_async(outputs);
    ctx.device->begin(run_options.stream);
    ctx.timed.clear();
    ctx.made_on_host.clear();
  }
  take_device_inputs(ctx, inputs);
  run_planned(ctx, shapes ? std::move(shapes) : shapes_for(ctx.symbols), outputs, run_options);
}

void Session::Impl::begin_and_run(RunContext& ctx, std::span<const RunTensor> inputs,
                                  std::span<RunTensor> outputs, const RunOptions& run_options) const {
  begin(ctx, inputs, outputs, run_options);
  std::shared_ptr<const ShapePlan> shapes = known_shapes(ctx.symbols);
  const bool stays = shapes ? shapes->stays_with_caller : will_stay_with_caller(ctx.symbols);
  auto work = [&] {
    RandomScope random(run_options.random);
    run(ctx, std::move(shapes), inputs, outputs, run_options);
  };
  if (stays) return work();
  if (threads() == 1 && !ctx.own_arena) ctx.own_arena = std::make_unique<Arena>(1);
  (ctx.own_arena ? *ctx.own_arena : arena()).execute(work);
}

Arena& Session::Impl::arena() const {
  std::call_once(arena_made, [&] { shared_or_own = arena_for(options); });
  return *shared_or_own;
}

Session::Session(std::shared_ptr<const BoundExecutable> bound, SessionOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->bound = std::move(bound);
  impl_->plan = impl_->bound->executable.get();
  impl_->facts = shape_facts(*impl_->plan);
  impl_->kept = places_of_states(*impl_->plan);
  const std::vector<BufferPlan>& buffers = impl_->plan->buffers;
  impl_->made_until.resize(impl_->plan->steps.size());
  for (size_t b = 0; b < buffers.size(); ++b)
    if (impl_->facts.made[b] && buffers[b].storage != StorageKind::output && buffers[b].last_step >= 0)
      impl_->made_until[buffers[b].last_step].push_back(static_cast<int>(b));
  impl_->growing = growing_sizes(*impl_->bound, impl_->facts.uses);
  impl_->options = std::move(options);
  if (impl_->bound->on_device)
    impl_->device_pool = std::make_unique<OutputPool>(impl_->bound->on_device->device);
}

Session::~Session() = default;

SameRuns::SameRuns() {
  static std::atomic<uint64_t> made = 0;
  number = ++made;
}

int Session::threads() const { return impl_->threads(); }

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
  if (!ctx) ctx = std::make_unique<RunContext>();
  if (impl_->start_again(*ctx, options))
    impl_->end_device(*ctx, outputs, options);
  else
    impl_->begin_and_run(*ctx, inputs, outputs, options);
  std::lock_guard lock(impl_->mutex);
  impl_->idle.push_back(std::move(ctx));
}

void Session::check(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs) const {
  const Executable& plan = *impl_->plan;
  auto by_element = [](const SymbolBinding& b) { return b.of == SymbolBinding::Of::element; };
  if (std::any_of(plan.bindings.begin(), plan.bindings.end(), by_element)) return;
  std::vector<int64_t> symbols;
  bind_symbols(plan, inputs, symbols);
  check_inputs(plan, inputs, symbols);
  impl_->check_places(inputs);
  TBX_MODEL(outputs.size() == plan.outputs.size(), "{} outputs given, the model has {}", outputs.size(),
            plan.outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o)
    if (const int b = plan.outputs[o].buffer; impl_->facts.later_buffers[b])
      Impl::check_type(outputs[o], plan.outputs[o]);
    else
      impl_->check_output(outputs[o], plan.outputs[o], evaluate_buffer(plan.buffers[b], symbols));
}

/// As a run does: libraries are asked for as many threads, and what they make serves the run.
std::shared_ptr<const ShapePlan> Session::Impl::shapes_of(std::span<const RunTensor> inputs) const {
  std::vector<int64_t> symbols;
  bind_symbols(*plan, inputs, symbols);
  check_inputs(*plan, inputs, symbols);
  std::shared_ptr<const ShapePlan> shapes;
  arena().execute([&] { shapes = shapes_for(symbols); });
  return shapes;
}

int64_t Session::peak_bytes(std::span<const RunTensor> inputs) const {
  const auto shapes = impl_->shapes_of(inputs);
  return std::max(shapes->arena_bytes + shapes->device_bytes, most_found());
}

int64_t Session::run_bytes(std::span<const RunTensor> inputs, std::span<const RunTensor> outputs) const {
  const auto shapes = impl_->shapes_of(inputs);
  int64_t bytes = shapes->arena_bytes + shapes->device_bytes;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (const int b = impl_->plan->outputs[i].buffer; !outputs[i].data && shapes->buffers[b].known)
      bytes += shapes->buffers[b].bytes;
  return bytes;
}

int64_t Session::most_found() const { return impl_->most_found; }

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
