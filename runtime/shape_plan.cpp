#include "runtime/shape_plan.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/memory.h"
#include "base/watch.h"
#include "extern_kernels/fit.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::runtime {
namespace {

constexpr int64_t kAlign = 64;
int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

/// A buffer's place in an arena. A sanitizer finds what runs over its end by a gap behind it.
int64_t place_of(int64_t bytes, DeviceKind device) {
  constexpr int64_t kDeviceAlign = 256;
  if (device != DeviceKind::cpu) return (bytes + kDeviceAlign - 1) / kDeviceAlign * kDeviceAlign;
  return aligned(bytes) + (is_watched() ? kAlign : 0);
}

std::vector<int64_t> evaluate_all(const SizeExprs& es, std::span<const int64_t> symbols) {
  std::vector<int64_t> v;
  v.reserve(es.size());
  for (const SizeExpr& e : es) v.push_back(e.evaluate(symbols));
  return v;
}

OperandShape evaluate_operand(const Executable& plan, const OperandView& v,
                              std::span<const int64_t> symbols) {
  OperandShape s;
  if (v.buffer < 0) return s;
  s.sizes = evaluate_all(v.sizes, symbols);
  s.strides = evaluate_all(v.strides, symbols);
  TBX_MODEL(!__builtin_mul_overflow(v.offset.evaluate(symbols), size_of(plan.buffers[v.buffer].dtype),
                                    &s.offset_bytes),
            "an operand lies outside of all memory");
  return s;
}

/// What a library reads and writes by address lies in its buffer, whoever made the plan.
void check_within(const Executable& plan, const OperandView& v, const OperandShape& s,
                  std::span<const BufferShape> buffers) {
  if (v.buffer < 0 || buffers.empty() || checked_numel(s.sizes) == 0) return;
  const int64_t width = std::max<int64_t>(1, size_of(plan.buffers[v.buffer].dtype));
  int64_t low = s.offset_bytes, high = s.offset_bytes;
  bool fits = !__builtin_add_overflow(high, width, &high);
  for (size_t d = 0; fits && d < s.sizes.size(); ++d) {
    int64_t far;
    fits = d < s.strides.size() && !__builtin_mul_overflow(s.sizes[d] - 1, s.strides[d], &far) &&
           !__builtin_mul_overflow(far, width, &far) &&
           !__builtin_add_overflow(far > 0 ? high : low, far, far > 0 ? &high : &low);
  }
  const BufferShape& buffer = buffers[v.buffer];
  TBX_MODEL(fits && low >= 0 && high <= std::max(buffer.bytes, buffer.room),
            "an operand of [{}] elements lies outside of its buffer of {} bytes: the plan is damaged",
            fmt::join(s.sizes, ", "), buffer.bytes);
}

/// `work`; its errors name the nodes of the step that they are about.
template <class Work> void naming(const Executable& plan, int step, Work work) {
  try {
    work();
  } catch (Error& e) {
    if (step >= 0) e.set_where(nodes_of(plan, plan.steps[step].origins));
    throw;
  }
}

bool calls_library(const Step& step) {
  return step.device == DeviceKind::cpu && std::holds_alternative<ExternStep>(step.what);
}

/// `one` for each of the steps. Libraries generate code for sizes that they have not met, most of the time of
/// a first run of a small model: all threads of the arena share that. The error is that of the first step.
template <class One> void evaluate_steps(const Executable& plan, const std::vector<size_t>& steps, One one) {
  std::vector<std::exception_ptr> failed(steps.size());
  auto evaluate = [&](size_t i) {
    try {
      naming(plan, static_cast<int>(steps[i]), [&] { one(steps[i]); });
    } catch (...) {
      failed[i] = std::current_exception();
    }
  };
  std::vector<size_t> calls;
  for (size_t i = 0; i < steps.size(); ++i)
    if (calls_library(plan.steps[steps[i]]))
      calls.push_back(i);
    else
      evaluate(i);
  // A thread that waits inside of one call must not begin another: it may hold a lock of the first.
  auto apart = [&](size_t c) { tbb::this_task_arena::isolate([&] { evaluate(calls[c]); }); };
  if (calls.size() == 1)
    evaluate(calls[0]);
  else
    tbb::parallel_for(size_t{0}, calls.size(), apart);
  for (const std::exception_ptr& error : failed)
    if (error) std::rethrow_exception(error);
}

/// Buffers that have a place, by the steps during which they live: a buffer is compared with those it meets
/// only, so that a long chain takes time in proportion to its length.
class Placed {
public:
  explicit Placed(const Executable& plan) : plan_(plan), seen_(plan.buffers.size(), -1) {}

  void add(int b) {
    for (size_t block = block_of(plan_.buffers[b].first_step); block <= block_of(plan_.buffers[b].last_step);
         ++block) {
      if (blocks_.size() <= block) blocks_.resize(block + 1);
      blocks_[block].push_back(b);
    }
  }
  /// Calls fn with each that lives at a time when `b` does, once.
  template <class Fn> void for_each_met(int b, Fn fn) {
    const BufferPlan& mine = plan_.buffers[b];
    for (size_t block = block_of(mine.first_step);
         block <= block_of(mine.last_step) && block < blocks_.size(); ++block)
      for (int p : blocks_[block]) {
        const BufferPlan& other = plan_.buffers[p];
        if (seen_[p] == b || other.first_step > mine.last_step || mine.first_step > other.last_step) continue;
        seen_[p] = b;
        fn(p);
      }
  }

private:
  static size_t block_of(int step) { return static_cast<size_t>(step) / 64; }
  const Executable& plan_;
  std::vector<std::vector<int>> blocks_;
  std::vector<int> seen_; ///< per buffer: for which it was looked at last
};

/// Greedy best fit in the arena of a device: largest buffers first, each at the lowest gap free during its
/// life.
int64_t lay_out(const Executable& plan, DeviceKind device, std::vector<BufferShape>& shapes) {
  std::vector<int> order;
  const std::vector<bool> kept = places_of_states(plan);
  for (size_t b = 0; b < shapes.size(); ++b)
    if (plan.buffers[b].storage == StorageKind::arena && plan.buffers[b].first_step >= 0 &&
        plan.buffers[b].device == device && !kept[b])
      order.push_back(static_cast<int>(b));
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return shapes[a].bytes > shapes[b].bytes; });
  int64_t total = 0;
  Placed placed(plan);
  std::vector<std::pair<int64_t, int64_t>> busy;
  for (int b : order) {
    busy.clear();
    placed.for_each_met(b, [&](int p) {
      busy.emplace_back(shapes[p].offset, shapes[p].offset + place_of(shapes[p].bytes, device));
    });
    std::sort(busy.begin(), busy.end());
    int64_t need = place_of(shapes[b].bytes, device), at = 0, best = -1, best_gap = INT64_MAX;
    for (auto [begin, end] : busy) {
      if (begin - at >= need && begin - at < best_gap) {
        best = at;
        best_gap = begin - at;
      }
      at = std::max(at, end);
    }
    shapes[b].offset = best >= 0 ? best : at;
    total = std::max(total, shapes[b].offset + need);
    placed.add(b);
  }
  return total;
}

} // namespace

std::vector<bool> places_of_states(const Executable& plan) {
  std::vector<bool> state(plan.buffers.size(), false), places = state;
  for (const SignatureEntry& in : plan.inputs) state[in.buffer] = in.state_axis >= 0;
  for (const Step& step : plan.steps)
    if (const auto* copy = std::get_if<CopyStep>(&step.what); copy && state[copy->from])
      places[copy->to] = true;
  return places;
}

BufferShape evaluate_buffer(const BufferPlan& buffer, std::span<const int64_t> symbols) {
  BufferShape s;
  const std::string name = buffer.name.empty() ? "an intermediate tensor" : "'" + buffer.name + "'";
  try {
    s.sizes = evaluate_all(buffer.sizes, symbols);
    s.strides = evaluate_all(buffer.strides, symbols);
    s.bytes = checked_numel(s.sizes);
  } catch (const Error& e) {
    throw_model_error("the shape of {} with the sizes of this run: {}", name, e.message());
  }
  const bool ours = buffer.storage != StorageKind::input && buffer.storage != StorageKind::constant;
  if (__builtin_mul_overflow(s.bytes, std::max<int64_t>(1, size_of(buffer.dtype)), &s.bytes) ||
      (ours && s.bytes > memory_limit()))
    throw Error(ErrorKind::model,
                fmt::format("{} would have the shape [{}], the machine has {} bytes of memory", name,
                            fmt::join(s.sizes, ", "), memory_limit()),
                "smaller inputs or sizes need less");
  s.room = s.bytes;
  return s;
}

StepShape evaluate_step(const BoundExecutable& bound, size_t step, std::span<const int64_t> symbols,
                        std::span<const BufferShape> buffers) {
  const Executable& plan = *bound.executable;
  const auto& what = plan.steps[step].what;
  StepShape s;
  if (const auto* kernel = std::get_if<KernelStep>(&what)) {
    s.tasks = kernel->tasks.evaluate(symbols);
    s.scratch_bytes = aligned(kernel->scratch_bytes.evaluate(symbols));
    s.size_args = evaluate_all(kernel->size_args, symbols);
    if (plan.steps[step].device == DeviceKind::cpu) return s;
    s.blocks = kernel->launch.blocks.evaluate(symbols);
    TBX_MODEL(s.blocks <= INT32_MAX, "a kernel would need {} blocks", s.blocks);
    TBX_MODEL(!__builtin_mul_overflow(s.scratch_bytes, s.blocks * kernel->launch.teams, &s.scratch_bytes),
              "a kernel would need more memory than there is");
    return s;
  }
  if (const auto* copy = std::get_if<CopyStep>(&what)) {
    s.copy_bytes = evaluate_buffer(plan.buffers[copy->from], symbols).bytes;
    return s;
  }
  const auto& call = std::get<ExternStep>(what);
  auto operand = [&](const OperandView& v) {
    OperandShape o = evaluate_operand(plan, v, symbols);
    check_within(plan, v, o, buffers);
    return o;
  };
  for (const OperandView& v : call.inputs) s.inputs.push_back(operand(v));
  std::vector<extern_kernels::TensorRef> in, out;
  auto refs = [&](const std::vector<OperandView>& views, const std::vector<OperandShape>& shapes,
                  auto& list) {
    for (size_t i = 0; i < views.size(); ++i)
      list.push_back({nullptr, views[i].buffer < 0 ? DType::undefined : plan.buffers[views[i].buffer].dtype,
                      shapes[i].sizes, shapes[i].strides});
  };
  refs(call.inputs, s.inputs, in);
  if (call.dynamic_outputs.empty()) {
    for (const OperandView& v : call.outputs) s.outputs.push_back(operand(v));
    refs(call.outputs, s.outputs, out);
  }
  if (!buffers.empty()) extern_kernels::check_fit(call.problem, in, out, !call.dynamic_outputs.empty());
  s.workspace_bytes = bound.steps[step].library->workspace_bytes(in, out);
  return s;
}

std::vector<std::string> implementations_of(const BoundExecutable& bound, size_t step, int threads) {
  const auto* call = std::get_if<ExternStep>(&bound.executable->steps[step].what);
  if (!call) return {};
  auto is_known = [](const OperandView& v) {
    auto constant = [](const SizeExpr& e) { return e.is_constant(); };
    return std::all_of(v.sizes.begin(), v.sizes.end(), constant) &&
           std::all_of(v.strides.begin(), v.strides.end(), constant) &&
           (v.buffer < 0 || v.offset.is_constant());
  };
  if (call->dynamic_outputs.empty() && std::all_of(call->inputs.begin(), call->inputs.end(), is_known) &&
      std::all_of(call->outputs.begin(), call->outputs.end(), is_known))
    tbb::task_arena(threads).execute([&] { evaluate_step(bound, step, {}); });
  const auto* library = dynamic_cast<const extern_kernels::LibraryKernel*>(bound.steps[step].library.get());
  return library ? library->implementations() : std::vector<std::string>();
}

SymbolUses symbol_uses(const Executable& plan) {
  SymbolUses uses;
  std::vector<int>* to = nullptr;
  auto one = [&](const SizeExpr& e) {
    for (const SizeExpr::Item& item : e.items)
      if (item.code == SizeExpr::Code::symbol) to->push_back(static_cast<int>(item.value));
  };
  auto all = [&](const SizeExprs& es) { std::for_each(es.begin(), es.end(), one); };
  for (const BufferPlan& b : plan.buffers) {
    to = &uses.buffers.emplace_back();
    all(b.sizes), all(b.strides);
  }
  for (const Step& step : plan.steps) {
    to = &uses.steps.emplace_back();
    if (const auto* kernel = std::get_if<KernelStep>(&step.what)) {
      one(kernel->tasks), one(kernel->scratch_bytes), all(kernel->size_args), one(kernel->launch.blocks);
    } else if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
      *to = uses.buffers[copy->from];
    } else {
      const auto& call = std::get<ExternStep>(step.what);
      for (const auto* views : {&call.inputs, &call.outputs})
        for (const OperandView& v : *views) all(v.sizes), all(v.strides), one(v.offset);
    }
  }
  return uses;
}

ShapePlan make_shape_plan(const BoundExecutable& bound, std::vector<int64_t> symbols, const SymbolUses& uses,
                          const ShapePlan* previous, Operands operands) {
  const Executable& plan = *bound.executable;
  ShapePlan p;
  int64_t device_work = 0;
  p.symbols = std::move(symbols);
  auto stays = [&](const std::vector<int>& used) {
    return previous &&
           std::all_of(used.begin(), used.end(), [&](int s) { return p.symbols[s] == previous->symbols[s]; });
  };
  bool same_places = previous != nullptr; // of all buffers in the arenas
  p.buffers.reserve(plan.buffers.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& b = plan.buffers[i];
    if (stays(uses.buffers[i])) {
      p.buffers.push_back(previous->buffers[i]);
      continue;
    }
    naming(plan, b.first_step, [&] { p.buffers.push_back(evaluate_buffer(b, p.symbols)); });
    if (!previous || b.storage != StorageKind::arena) continue;
    p.buffers[i].offset = previous->buffers[i].offset;
    same_places = same_places &&
                  place_of(p.buffers[i].bytes, b.device) == place_of(previous->buffers[i].bytes, b.device);
  }
  p.steps.resize(plan.steps.size());
  const std::span<const BufferShape> checked = operands == Operands::checked
                                                   ? std::span<const BufferShape>(p.buffers)
                                                   : std::span<const BufferShape>();
  std::vector<size_t> changed;
  for (size_t s = 0; s < plan.steps.size(); ++s)
    if (stays(uses.steps[s]))
      p.steps[s] = previous->steps[s];
    else
      changed.push_back(s);
  evaluate_steps(plan, changed, [&](size_t s) { p.steps[s] = evaluate_step(bound, s, p.symbols, checked); });
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const StepShape& step = p.steps[s];
    if (plan.steps[s].device != DeviceKind::cpu) {
      device_work = std::max({device_work, step.scratch_bytes, step.workspace_bytes});
      continue;
    }
    p.scratch_bytes = std::max(p.scratch_bytes, step.scratch_bytes);
    p.workspace_bytes = std::max(p.workspace_bytes, aligned(step.workspace_bytes));
  }
  p.arena_bytes = same_places ? previous->arena_bytes : lay_out(plan, DeviceKind::cpu, p.buffers);
  p.device_work = same_places ? previous->device_work : lay_out(plan, DeviceKind::cuda, p.buffers);
  p.device_bytes = p.device_work + device_work;
  return p;
}

bool move_shape_plan(const BoundExecutable& bound, ShapePlan& plan, std::span<const int64_t> symbols,
                     std::span<const int> buffers, std::span<const int> steps) {
  const Executable& executable = *bound.executable;
  plan.symbols.assign(symbols.begin(), symbols.end());
  for (int b : buffers) {
    const int64_t room = plan.buffers[b].room, offset = plan.buffers[b].offset;
    naming(executable, executable.buffers[b].first_step,
           [&] { plan.buffers[b] = evaluate_buffer(executable.buffers[b], plan.symbols); });
    if (plan.buffers[b].bytes > room) return false;
    plan.buffers[b].room = room;
    plan.buffers[b].offset = offset;
  }
  for (int s : steps) {
    naming(executable, s,
           [&] { plan.steps[s] = evaluate_step(bound, static_cast<size_t>(s), plan.symbols, plan.buffers); });
    if (executable.steps[s].device != DeviceKind::cpu &&
        std::max(plan.steps[s].scratch_bytes, plan.steps[s].workspace_bytes) >
            plan.device_bytes - plan.device_work)
      return false;
  }
  return true;
}

} // namespace tbx::runtime
