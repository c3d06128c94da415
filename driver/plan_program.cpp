#include "driver/plan_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/budget.h"
#include "base/error.h"
#include "base/spare_memory.h"
#include "driver/passes.h"
#include "driver/place.h"
#include "driver/state.h"
#include "driver/stopwatch.h"
#include "driver/target.h"
#include "lowering/lower.h"
#include "runtime/verify.h"

namespace tbx::driver {

fusion::Schedule schedule_program(ir::Program program, const CompileOptions& options, StepTimes* times) {
  fusion::ScheduleOptions so;
  so.disabled = sort_disabled(options.disabled_passes).of_schedule;
  so.fuse = options.fuse;
  so.fuse_extern = options.fuse_extern;
  so.fold_constants = !options.reference;
  const Target target = program.target;
  fusion::Schedule schedule = fusion::schedule(std::move(program), target, so, times);
  const extern_kernels::Precision precision = chosen_precision(options);
  for (fusion::Group& group : schedule.groups)
    if (auto* call = std::get_if<ir::ExternCall>(&group.what); call && !call->inputs.empty()) {
      // Operands that memory holds narrow are multiplied as they are.
      if (const ir::BufferId left = call->inputs[0].buffer;
          left < 0 || is_half(schedule.program.at(left).dtype))
        continue;
      if (auto* conv = std::get_if<extern_kernels::ConvProblem>(&call->problem)) conv->precision = precision;
      if (auto* product = std::get_if<extern_kernels::MatMulProblem>(&call->problem))
        product->precision = precision;
    }
  return schedule;
}

std::vector<codegen::EmittedKernel> emit_all(const fusion::Schedule& schedule, const Emit& emit,
                                             const CompileOptions& options) {
  std::vector<codegen::EmittedKernel> emitted;
  Counted text;
  for (const fusion::Group& group : schedule.groups) {
    const auto* kernel = std::get_if<ir::KernelProgram>(&group.what);
    if (!kernel) continue;
    check_stop();
    try {
      emitted.push_back(emit(*kernel));
      text.add(static_cast<int64_t>(emitted.back().text.size()));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::unsupported) throw;
      if (options.log) options.log(fmt::format("kernel evaluated, not compiled: {}", e.message()));
      emitted.emplace_back();
    }
  }
  return emitted;
}

Emit emit_cpp_for(const Target& target) {
  return [target](const ir::KernelProgram& kernel) { return codegen::emit_cpp(kernel, target); };
}

codegen::Toolchain toolchain_of(const CompileOptions& options) {
  codegen::Toolchain toolchain;
  toolchain.cache_dir = options.cache_dir;
  if (options.compile_time_limit_ms > 0) toolchain.time_limit_ms = options.compile_time_limit_ms;
  if (options.compile_memory > 0) toolchain.memory_limit = options.compile_memory;
  toolchain.interrupted = options.interrupted;
  toolchain.log = options.log;
  return toolchain;
}

std::vector<codegen::EmittedKernel> named_kernels(const std::vector<codegen::EmittedKernel>& all) {
  std::vector<codegen::EmittedKernel> named;
  for (const codegen::EmittedKernel& k : all)
    if (!k.function.empty()) named.push_back(k);
  return named;
}

namespace {

/// Symbols that stand for elements of inputs get their values from there.
void bind_elements(runtime::Executable& plan, const Specialisation& made_for) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    auto it = made_for.elements.find(plan.inputs[i].name);
    for (size_t k = 0; it != made_for.elements.end() && k < it->second.size(); ++k) {
      auto symbol = std::find(plan.symbol_names.begin(), plan.symbol_names.end(),
                              lowering::element_symbol(it->first, k));
      if (!it->second[k] && symbol != plan.symbol_names.end())
        plan.bindings.push_back({static_cast<int>(symbol - plan.symbol_names.begin()), static_cast<int>(i),
                                 static_cast<int>(k), runtime::SymbolBinding::Of::element});
    }
  }
}

/// Complex inputs and outputs are, in the plan's memory, pairs of parts along a last dimension of 2.
void show_complex(const Graph& graph, const std::vector<ValueId>& ids,
                  std::vector<runtime::SignatureEntry>& entries) {
  for (size_t i = 0; i < ids.size(); ++i) {
    DType type = ids[i] < 0 ? DType::undefined : graph.at(ids[i]).type.dtype;
    if (!is_complex(type)) continue;
    entries[i].dtype = type;
    entries[i].dims.pop_back();
    entries[i].sizes.pop_back();
  }
}

/// One entry per kernel group, for the device where it can be; else for the host, which is said.
void emit_for_device(const fusion::Schedule& schedule, const CompileOptions& options, For gpus,
                     Planned& result) {
  result.has_compiler = codegen::have_compiler(toolchain_of(options));
  const Target target = target_of(options, schedule.program.target.isa,
                                  gpus == For::this_device ? result.device.get() : nullptr);
  const Emit emit = [&](const ir::KernelProgram& kernel) {
    try {
      return result.for_device.emplace_back(codegen::emit_cuda(kernel, target.gpu));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::unsupported) throw;
      if (options.log) options.log(fmt::format("kernel on the host, not on the device: {}", e.message()));
      if (!result.has_compiler) throw;
      return codegen::emit_cpp(kernel, target);
    }
  };
  result.emitted = emit_all(schedule, emit, options);
}

} // namespace

Planned plan_program(LoweredGraph& lowered, const Graph& graph, const CompileOptions& options, For gpus) {
  Stopwatch watch;
  const Target target = lowered.program.target;
  CompileStats& stats = lowered.stats;
  auto stage = [&](const char* name) {
    if (options.progress) options.progress(name, 0, 0);
  };
  stage("schedule");
  require_spare_memory(); // for what libraries make of a question
  fusion::Schedule schedule = schedule_program(std::move(lowered.program), options, &stats.passes_ms);
  stats.schedule_ms = watch.lap();

  Planned result;
  result.device = device_of(options);
  if (result.device) {
    emit_for_device(schedule, options, gpus, result);
  } else if (options.compile) {
    const codegen::Toolchain toolchain = toolchain_of(options);
    result.emitted = emit_all(schedule, emit_cpp_for(target), options);
    // Whether a compiler works takes a process to find out, which a start with a filled cache can do without.
    const std::vector<codegen::EmittedKernel> kernels = named_kernels(result.emitted);
    result.found = codegen::cached_module(kernels, target.isa, toolchain);
    const std::string fault = result.found ? "" : codegen::compiler_fault(toolchain);
    result.has_compiler = !result.found && fault.empty();
    if (!result.found && !result.has_compiler)
      result.found = codegen::find_module(kernels, target.isa, toolchain);
    if (!result.has_compiler && !result.found) {
      result.emitted.clear();
      stats.not_compiled = fault + "; not all kernels are in the cache, so they run in the evaluator";
      if (options.log) options.log(stats.not_compiled);
    }
  }
  stage("plan");
  auto plan_with = [&](const std::vector<codegen::EmittedKernel>& emitted) {
    PlanResult plan = make_plan(schedule, emitted);
    if (result.device) place(plan, emitted, result.for_device, *result.device);
    bind_elements(plan.executable, lowered.made_for);
    show_state(plan.executable, lowered.state);
    show_complex(graph, graph.inputs, plan.executable.inputs);
    show_complex(graph, graph.outputs, plan.executable.outputs);
    runtime::verify(plan.executable);
    return plan;
  };
  result.plan = plan_with(result.emitted);
  if (options.tiered && result.has_compiler && !result.device) result.evaluated = plan_with({});
  stats.build_ms = watch.lap();
  return result;
}

std::vector<codegen::EmittedKernel> kernels_of_host(const Planned& planned) {
  std::set<std::string> elsewhere;
  for (const codegen::EmittedKernel& k : planned.for_device) elsewhere.insert(k.function);
  std::vector<codegen::EmittedKernel> kernels = named_kernels(planned.emitted);
  std::erase_if(kernels, [&](const codegen::EmittedKernel& k) { return elsewhere.contains(k.function); });
  return kernels;
}

} // namespace tbx::driver
