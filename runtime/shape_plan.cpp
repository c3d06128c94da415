#include "runtime/shape_plan.h"

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/memory.h"
#include "base/rounding.h"
#include "extern_kernels/fit.h"
#include "extern_kernels/library_kernel.h"

namespace tbx::runtime {
namespace {

constexpr int64_t kAlign = 64;
int64_t aligned(int64_t bytes) { return round_up(bytes, kAlign); }

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
  const auto* call = std::get_if<ExternStep>(&step.what);
  return call && step.device == DeviceKind::cpu &&
         !std::holds_alternative<extern_kernels::HostProblem>(call->problem);
}

/// `one` for each of the steps. Libraries generate code for sizes that they have not met, most of the time of
/// a first run of a small model: all threads of the arena share that. The error is that of the first step.
template <class One> void evaluate_steps(const Executable& plan, const std::vector<int>& steps, One one) {
  std::vector<std::exception_ptr> failed(steps.size());
  auto evaluate = [&](size_t i) {
    try {
      naming(plan, steps[i], [&] { one(static_cast<size_t>(steps[i])); });
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

/// Those of the buffers that need a place on a device.
std::vector<int> placed_on(const Executable& plan, const Lives& lives, DeviceKind device,
                           std::span<const int> buffers) {
  std::vector<int> placed;
  for (int b : buffers)
    if (lives.needs_place(b) && plan.buffers[b].device == device) placed.push_back(b);
  return placed;
}

} // namespace

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
  s.known = true;
  return s;
}

StepShape sizes_of_step(const Executable& plan, size_t step, std::span<const int64_t> symbols) {
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
    s.state_bytes = kernel->state_bytes.evaluate(symbols);
    s.scratch_bytes = std::max(s.scratch_bytes, aligned(s.state_bytes)); // a kernel has either
  } else if (const auto* copy = std::get_if<CopyStep>(&what)) {
    s.copy_bytes = evaluate_buffer(plan.buffers[copy->from], symbols).bytes;
  } else {
    const auto& call = std::get<ExternStep>(what);
    for (const OperandView& v : call.inputs) s.inputs.push_back(evaluate_operand(plan, v, symbols));
    if (call.dynamic_outputs.empty())
      for (const OperandView& v : call.outputs) s.outputs.push_back(evaluate_operand(plan, v, symbols));
  }
  return s;
}

CallRefs refs_of(const Executable& plan, const ExternStep& call, const StepShape& shape) {
  auto refs = [&](const std::vector<OperandView>& views, const std::vector<OperandShape>& shapes) {
    std::vector<extern_kernels::TensorRef> list;
    for (size_t i = 0; i < shapes.size(); ++i)
      list.push_back({nullptr, views[i].buffer < 0 ? DType::undefined : plan.buffers[views[i].buffer].dtype,
                      shapes[i].sizes, shapes[i].strides});
    return list;
  };
  return {refs(call.inputs, shape.inputs), refs(call.outputs, shape.outputs)};
}

StepShape evaluate_step(const BoundExecutable& bound, size_t step, std::span<const int64_t> symbols,
                        std::span<const BufferShape> buffers) {
  const Executable& plan = *bound.executable;
  StepShape s = sizes_of_step(plan, step, symbols);
  const auto* call = std::get_if<ExternStep>(&plan.steps[step].what);
  if (!call) return s;
  for (size_t i = 0; i < s.inputs.size(); ++i) check_within(plan, call->inputs[i], s.inputs[i], buffers);
  for (size_t i = 0; i < s.outputs.size(); ++i) check_within(plan, call->outputs[i], s.outputs[i], buffers);
  const CallRefs refs = refs_of(plan, *call, s);
  if (!buffers.empty())
    extern_kernels::check_fit(call->problem, refs.inputs, refs.outputs, !call->dynamic_outputs.empty());
  s.workspace_bytes = bound.steps[step].library->workspace_bytes(refs.inputs, refs.outputs);
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

namespace {

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
      one(kernel->tasks), one(kernel->scratch_bytes), one(kernel->state_bytes), all(kernel->size_args),
          one(kernel->launch.blocks);
    } else if (const auto* copy = std::get_if<CopyStep>(&step.what)) {
      *to = uses.buffers[copy->from];
    } else {
      const auto& call = std::get<ExternStep>(step.what);
      auto operands = [&](const std::vector<OperandView>& views) {
        for (const OperandView& v : views) {
          all(v.sizes), all(v.strides), one(v.offset);
          if (v.buffer < 0) continue;
          const std::vector<int>& of_buffer = uses.buffers[v.buffer]; // it is to lie in there
          to->insert(to->end(), of_buffer.begin(), of_buffer.end());
        }
      };
      operands(call.inputs);
      if (call.dynamic_outputs.empty()) operands(call.outputs); // else they are what it finds
    }
  }
  return uses;
}

} // namespace

ShapeFacts shape_facts(const Executable& plan) {
  ShapeFacts facts;
  facts.uses = symbol_uses(plan);
  // The last step to find a symbol, or to make a buffer; -1: none does.
  std::vector<int> found_by(plan.symbol_names.size(), -1), known_after(plan.buffers.size(), -1);
  facts.made.assign(plan.buffers.size(), false);
  for (size_t s = 0; s < plan.steps.size(); ++s)
    if (const auto* call = std::get_if<ExternStep>(&plan.steps[s].what)) {
      for (int b : call->dynamic_outputs) {
        facts.made[b] = true;
        known_after[b] = static_cast<int>(s);
      }
      for (const std::vector<int>& dims : call->dynamic_dims)
        for (int symbol : dims)
          if (symbol >= 0) found_by[symbol] = static_cast<int>(s);
    }
  facts.found.resize(plan.steps.size());
  for (size_t b = 0; b < plan.buffers.size(); ++b) {
    int& after = known_after[b];
    for (int symbol : facts.uses.buffers[b]) after = std::max(after, found_by[symbol]);
    facts.later_buffers.push_back(after >= 0);
    if (after >= 0) facts.found[after].buffers.push_back(static_cast<int>(b));
  }
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    int after = -1;
    for (int symbol : facts.uses.steps[s]) after = std::max(after, found_by[symbol]);
    const auto* call = std::get_if<ExternStep>(&plan.steps[s].what);
    const bool finds = call && !call->dynamic_outputs.empty();
    for_each_buffer(plan.steps[s], [&](int b, bool writes) {
      if (!writes || !finds) after = std::max(after, known_after[b]);
    });
    facts.later_steps.push_back(after >= 0);
    if (after >= 0) facts.found[after].steps.push_back(static_cast<int>(s));
  }
  facts.lives = Lives(plan, facts.made);
  return facts;
}

ShapePlan make_shape_plan(const BoundExecutable& bound, std::vector<int64_t> symbols, const ShapeFacts& facts,
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
  std::vector<int> known, changed;
  p.buffers.resize(plan.buffers.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferPlan& b = plan.buffers[i];
    if (facts.later_buffers[i]) continue;
    known.push_back(static_cast<int>(i));
    if (stays(facts.uses.buffers[i])) {
      p.buffers[i] = previous->buffers[i];
      continue;
    }
    naming(plan, b.first_step, [&] { p.buffers[i] = evaluate_buffer(b, p.symbols); });
    if (!previous || !facts.lives.needs_place(static_cast<int>(i))) continue;
    p.buffers[i].offset = previous->buffers[i].offset;
    same_places = same_places &&
                  place_of(p.buffers[i].bytes, b.device) == place_of(previous->buffers[i].bytes, b.device);
  }
  p.steps.resize(plan.steps.size());
  const std::span<const BufferShape> checked = operands == Operands::checked
                                                   ? std::span<const BufferShape>(p.buffers)
                                                   : std::span<const BufferShape>();
  for (size_t s = 0; s < plan.steps.size(); ++s)
    if (!facts.later_steps[s] && stays(facts.uses.steps[s]))
      p.steps[s] = previous->steps[s];
    else if (!facts.later_steps[s])
      changed.push_back(static_cast<int>(s));
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
  auto laid_out = [&](DeviceKind device) {
    return lay_out(plan, facts.lives, placed_on(plan, facts.lives, device, known), p.buffers);
  };
  p.arena_bytes = same_places ? previous->arena_bytes : laid_out(DeviceKind::cpu);
  p.device_work = same_places ? previous->device_work : laid_out(DeviceKind::cuda);
  p.device_bytes = p.device_work + device_work;
  return p;
}

void forget_found(const ShapeFacts& facts, const ShapePlan& known, ShapePlan& plan, bool same_places) {
  for (const ShapeFacts::Found& found : facts.found)
    for (int b : found.buffers) plan.buffers[b].known = false;
  plan.extended.resize(plan.steps.size());
  plan.arena_bytes = known.arena_bytes;
  plan.device_work = known.device_work;
  plan.device_bytes = known.device_bytes;
  plan.same_places = same_places;
}

void extend_shape_plan(const BoundExecutable& bound, ShapePlan& p, const ShapeFacts& facts,
                       const Extension& by) {
  const Executable& plan = *bound.executable;
  const ShapeFacts::Found& found = facts.found[by.step];
  auto stays = [&](const std::vector<int>& used) {
    return p.extended[by.step] &&
           std::all_of(used.begin(), used.end(), [&](int s) { return by.symbols[s] == by.before[s]; });
  };
  for (int b : found.buffers) {
    BufferShape& shape = p.buffers[b];
    if (stays(facts.uses.buffers[b])) {
      shape.known = true;
      continue;
    }
    const int64_t offset = shape.offset, room = shape.room;
    naming(plan, plan.buffers[b].first_step, [&] { shape = evaluate_buffer(plan.buffers[b], by.symbols); });
    shape.offset = offset;
    p.same_places = p.same_places && (by.exact ? shape.bytes == room : shape.bytes <= room);
    if (p.same_places) shape.room = room;
  }
  std::vector<int> changed;
  for (int s : found.steps)
    if (!stays(facts.uses.steps[s])) changed.push_back(s);
  evaluate_steps(plan, changed,
                 [&](size_t s) { p.steps[s] = evaluate_step(bound, s, by.symbols, p.buffers); });
  p.same_places = p.same_places && p.extended[by.step];
  p.extended[by.step] = true;
  auto lay_out_on = [&](DeviceKind device, std::span<const int64_t> across) {
    const std::vector<int> placed = placed_on(plan, facts.lives, device, found.buffers);
    int64_t end = 0;
    for (int b : placed) {
      if (!p.same_places) p.buffers[b].room = p.buffers[b].bytes;
      end = std::max(end, p.buffers[b].offset + place_of(p.buffers[b].room, device));
    }
    return p.same_places ? end : lay_out(plan, facts.lives, placed, p.buffers, across);
  };
  p.arena_bytes = std::max(p.arena_bytes, lay_out_on(DeviceKind::cpu, by.borders));
  int64_t work = p.device_bytes - p.device_work;
  for (int s : found.steps)
    if (plan.steps[s].device != DeviceKind::cpu)
      work = std::max({work, p.steps[s].scratch_bytes, p.steps[s].workspace_bytes});
  p.device_work = std::max(p.device_work, lay_out_on(DeviceKind::cuda, by.device_borders));
  p.device_bytes = p.device_work + work;
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
