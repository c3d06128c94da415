#include "driver/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <system_error>

#include "base/budget.h"
#include "base/error.h"
#include "base/spare_memory.h"
#include "codegen/build_module.h"
#include "codegen/device_binary.h"
#include "driver/limits.h"
#include "driver/passes.h"
#include "driver/place.h"
#include "driver/state.h"
#include "driver/target.h"
#include "driver/value_compile.h"
#include "extern_kernels/catalogue.h"
#include "extern_kernels/custom_operator.h"
#include "graph/partition/every_value.h"
#include "graph/partition/value_graph.h"
#include "lowering/lower.h"
#include "lowering/op_registry.h"
#include "package/evaluated_module.h"
#include "package/session_impl.h"
#include "runtime/session.h"
#include "runtime/verify.h"

namespace tbx::driver {
namespace {

class Stopwatch {
public:
  double lap() {
    auto now = std::chrono::steady_clock::now();
    double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

Graph import_source(const Source& source, const CompileOptions& options,
                    const std::map<std::string, std::vector<int64_t>>& shapes = {},
                    std::vector<InputDefault>* defaults = nullptr) {
  ImportOptions import_options;
  import_options.overridable = options.overridable;
  import_options.defaults = defaults;
  import_options.input_shapes = shapes;
  import_options.dim_overrides = options.dims;
  import_options.all_dims_dynamic = options.all_dims_dynamic;
  set_limits(import_options, options);
  import_options.type_giver = lowering::type_giver;
  import_options.custom_operators = extern_kernels::load_custom_operators(options.operator_libraries);
  import_options.seen = source.seen;
  if (const auto* path = std::get_if<std::filesystem::path>(&source.from))
    return import_model(*path, import_options);
  return import_model(std::get<std::span<const std::byte>>(source.from), import_options,
                      options.external_data_dir);
}

using StepTimes = std::vector<std::pair<std::string, double>>;

fusion::Schedule schedule_program(ir::Program program, const CompileOptions& options,
                                  StepTimes* times = nullptr) {
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

using Emit = std::function<codegen::EmittedKernel(const ir::KernelProgram&)>;

/// One entry per kernel group. A kernel the emitter cannot express keeps an empty name and is evaluated; that
/// is reported, never silent.
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

/// The prelude and every distinct kernel.
std::string source_text(std::string text, const std::vector<codegen::EmittedKernel>& kernels) {
  std::set<std::string> seen;
  for (const codegen::EmittedKernel& k : kernels)
    if (!k.function.empty() && seen.insert(k.function).second) text += "\n" + k.text;
  return text;
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

/// Symbols that stand for elements of inputs get their values from there.
void bind_elements(runtime::Executable& plan, const Specialisation& made_for) {
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    auto it = made_for.elements.find(plan.inputs[i].name);
    for (size_t k = 0; it != made_for.elements.end() && k < it->second.size(); ++k) {
      auto symbol = std::find(plan.symbol_names.begin(), plan.symbol_names.end(),
                              lowering::element_symbol(it->first, k));
      if (!it->second[k] && symbol != plan.symbol_names.end())
        plan.bindings.push_back({static_cast<int>(symbol - plan.symbol_names.begin()), static_cast<int>(i),
                                 static_cast<int>(k), true});
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

} // namespace

std::shared_ptr<device::Device> device_of(const CompileOptions& options) {
  if (options.device.empty()) return nullptr;
  TBX_MODEL(options.compile && !options.reference,
            "device '{}' runs compiled kernels: neither the evaluator (compile=false) nor the reference",
            options.device);
  std::shared_ptr<device::Device> device = device::open(options.device);
  if (device->properties().architecture.starts_with("sm_"))
    device::cuda::set_binary_cache(codegen::binary_cache(toolchain_of(options)));
  return device;
}

Graph prepare_graph(const Source& source, const CompileOptions& options,
                    const std::map<std::string, std::vector<int64_t>>& shapes, CompileStats& stats,
                    std::vector<InputDefault>* defaults, std::optional<Isa> isa) {
  chosen_isa(options); // refused before the model is read
  chosen_precision(options);
  device_of(options);
  if (std::string note = isa ? "" : precision_note(options); options.log && !note.empty()) options.log(note);
  Stopwatch watch;
  if (options.progress) options.progress("import", 0, 0);
  Graph graph = import_source(source, options, shapes, defaults);
  stats.nodes = static_cast<int>(graph.nodes.size());
  stats.import_ms = watch.lap();
  if (options.progress) options.progress("simplify", 0, 0);
  for (const graph::PassResult& p : graph::run_graph_passes(
           graph, sort_disabled(options.disabled_passes).of_graph, pass_context(options, isa)))
    stats.passes_ms.emplace_back(p.name, p.ms);
  put_state_last(graph, options);
  if (options.every_value) graph::show_every_value(graph);
  stats.optimize_ms = watch.lap();
  stats.total_ms = stats.import_ms + stats.optimize_ms;
  return graph;
}

namespace {

/// What the stages before the plan give.
struct Planned {
  PlanResult plan;
  std::optional<PlanResult> evaluated;         ///< the same, run before its kernels are built: option tiered
  std::vector<codegen::EmittedKernel> emitted; ///< empty: all kernels are evaluated
  bool has_compiler = false;                   ///< asked where it is needed
  std::shared_ptr<codegen::Module> found;      ///< all kernels were in the cache
  std::shared_ptr<device::Device> device;
  std::vector<codegen::EmittedKernel> for_device;
};

/// Which GPUs kernels are for.
enum class For : uint8_t { this_device, any_device };

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

using LowerResult = std::variant<LoweredGraph, lowering::Demand>;

lowering::Lowered lower_as(const Graph& graph, const Target& target, const Specialisation& made_for) {
  lowering::LowerOptions how;
  how.target = target;
  how.known_inputs = made_for.known;
  how.element_inputs = made_for.elements;
  how.assume_broadcast = made_for.assume == Assume::broadcast_too;
  how.assume_exact_floats = made_for.assume != Assume::nothing;
  return lowering::lower(graph, how);
}

/// The same for another target than the options'.
LowerResult lower_for(const Graph& graph, const CompileOptions& options, const Target& target,
                      Specialisation made_for, CompileStats stats) {
  Stopwatch watch;
  if (options.progress) options.progress("lower", 0, 0);
  lowering::Lowered lowered = lower_as(graph, target, made_for);
  if (auto* demand = std::get_if<lowering::Demand>(&lowered);
      demand && demand->kind == lowering::Demand::Kind::assumptions) {
    made_for.assume = Assume::nothing;
    const Error first = demand->reason;
    try {
      lowered = lower_as(graph, target, made_for);
    } catch (const Error& again) {
      if (again.kind() != ErrorKind::model) throw;
      throw Error(first); // it was not for what was assumed
    }
  }
  if (auto* demand = std::get_if<lowering::Demand>(&lowered)) return std::move(*demand);
  stats.lower_ms = watch.lap();
  stats.total_ms += stats.lower_ms;
  LoweredGraph result{std::move(std::get<ir::Program>(lowered)), {}, std::move(made_for), std::move(stats)};
  result.state = keep_state(result.program, graph, options);
  return result;
}

/// For callers who cannot meet a demand.
LoweredGraph or_throw(LowerResult result) {
  if (const auto* demand = std::get_if<lowering::Demand>(&result)) throw Error(demand->reason);
  return std::move(std::get<LoweredGraph>(result));
}

/// Schedule, emit and plan. `stats` of what was lowered go on counting.
Planned plan_program(LoweredGraph& lowered, const Graph& graph, const CompileOptions& options,
                     For gpus = For::this_device) {
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
    result.has_compiler = !result.found && codegen::have_compiler(toolchain);
    if (!result.found && !result.has_compiler)
      result.found = codegen::find_module(kernels, target.isa, toolchain);
    if (!result.has_compiler && !result.found) {
      result.emitted.clear();
      if (options.log)
        options.log(
            "no C++ compiler found, and not all kernels in the cache: they run in the evaluator (set TBX_CXX "
            "to a compiler)");
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

/// The kernels that were not emitted for a device.
std::vector<codegen::EmittedKernel> kernels_of_host(const Planned& planned) {
  std::set<std::string> elsewhere;
  for (const codegen::EmittedKernel& k : planned.for_device) elsewhere.insert(k.function);
  std::vector<codegen::EmittedKernel> kernels = named_kernels(planned.emitted);
  std::erase_if(kernels, [&](const codegen::EmittedKernel& k) { return elsewhere.contains(k.function); });
  return kernels;
}

/// A plan, with those of its kernels that are evaluated.
struct Bindable {
  explicit Bindable(PlanResult plan)
      : executable(std::make_shared<runtime::Executable>(std::move(plan.executable))),
        steps(std::move(plan.steps)),
        evaluated(package::evaluated_module(std::move(plan.evaluated), package::KernelsFrom::here)) {}
  std::shared_ptr<runtime::Executable> executable;
  std::vector<StepInfo> steps;
  std::shared_ptr<const runtime::Module> evaluated;
};

/// The last stage. `stats` of what was planned go on counting.
Compiled bind_program(const Bindable& plan, const std::shared_ptr<const codegen::Module>& native,
                      CompileStats stats, const runtime::BindOptions& options) {
  Compiled result;
  std::vector<std::shared_ptr<const runtime::Module>> modules;
  if (native) {
    stats.compiled_units += native->compiled;
    stats.cached_units += native->cached;
    modules.push_back(native);
  }
  modules.push_back(plan.evaluated);
  result.bound = runtime::bind(plan.executable, std::move(modules), options);
  result.steps = plan.steps;
  package::describe(*result.bound, result.steps);
  for (size_t s = 0; s < result.steps.size(); ++s) {
    const std::string& kind = result.steps[s].kind;
    ++(kind == "copy" ? stats.copies : kind == "extern" ? stats.extern_kernels : stats.generated_kernels);
    stats.evaluated_kernels += kind == "evaluated";
    stats.device_steps += kind != "copy" && result.executable().steps[s].device != runtime::DeviceKind::cpu;
  }
  result.stats = std::move(stats);
  return result;
}

/// bind_on_device() in a thread of its own.
std::function<std::vector<runtime::BoundStep>()>
meanwhile(const std::shared_ptr<const runtime::Executable>& executable, const runtime::BindOptions& how) {
  auto bound = std::make_shared<std::future<std::vector<runtime::BoundStep>>>();
  try {
    *bound = std::async(std::launch::async, [=] { return runtime::bind_on_device(*executable, how); });
  } catch (const std::system_error&) { // there is no thread: it is bound when it is asked for
    return {};
  }
  return [bound] { return bound->get(); };
}

/// The program, evaluated; its kernels are built later, with the library kernels that it has.
Compiled first_tier(Planned planned, const CompileStats& stats, const CompileOptions& options,
                    PackedConstants packed) {
  codegen::Toolchain toolchain = toolchain_of(options);
  toolchain.log = nullptr; // it was told already
  toolchain.interrupted = nullptr;
  toolchain.gives_way = true;
  toolchain = codegen::resolved(std::move(toolchain));
  Bindable first(std::move(*planned.evaluated));
  for (StepInfo& step : first.steps)
    if (step.kind == "evaluated") step.decisions.emplace_back(kTierNote);
  const Bindable second(std::move(planned.plan)); // of the same schedule, with the same constants
  runtime::BindOptions how{.threads = options.threads};
  if (packed == PackedConstants::given_up)
    how.unread = [&](size_t constant) {
      runtime::give_up(*first.executable, constant);
      runtime::give_up(*second.executable, constant);
    };
  Compiled result = bind_program(first, nullptr, stats, how);
  result.later = [emitted = named_kernels(planned.emitted), isa = chosen_isa(options),
                  toolchain = std::move(toolchain), plan = second, stats, threads = options.threads,
                  twin = result.bound](const auto& stopped, const auto& log) {
    Stopwatch watch;
    codegen::Toolchain with = toolchain;
    with.interrupted = stopped;
    with.log = log;
    Compiled made = bind_program(plan, codegen::build_module(emitted, isa, with), stats,
                                 {.threads = threads, .twin = twin.get()});
    const double ms = watch.lap();
    made.stats.build_ms += ms;
    made.stats.total_ms += ms;
    return made;
  };
  return result;
}

} // namespace

LowerResult lower_graph(const Graph& graph, const CompileOptions& options, Specialisation made_for,
                        CompileStats stats) {
  return lower_for(graph, options, target_of(options), std::move(made_for), std::move(stats));
}

Compiled compile_program(LoweredGraph lowered, const Graph& graph, const CompileOptions& options,
                         PackedConstants packed) {
  Stopwatch total, watch;
  auto stage = [&](const char* name, int done = 0, int of = 0) {
    if (options.progress) options.progress(name, done, of);
  };
  Planned planned = plan_program(lowered, graph, options);
  CompileStats& stats = lowered.stats;

  watch.lap();
  auto timed = [&](Compiled made) {
    made.stats.build_ms += watch.lap();
    made.stats.total_ms += total.lap();
    return made;
  };
  if (planned.evaluated) {
    stage("bind");
    return timed(first_tier(std::move(planned), stats, options, packed));
  }
  std::shared_ptr<codegen::Module> native = planned.found;
  const Bindable plan(std::move(planned.plan));
  runtime::BindOptions how{.threads = options.threads,
                           .kernels = options.reference ? extern_kernels::Kernels::plain
                                                        : extern_kernels::Kernels::fastest,
                           .on = {planned.device, nullptr}};
  if (planned.device) how.libraries = meanwhile(plan.executable, how);
  if (planned.device && !planned.for_device.empty()) {
    stage("build");
    const OutsideOfLoad waiting;
    bool cached = false;
    how.on.kernels = planned.device->load(codegen::cached_device_binary(
        planned.for_device, planned.device->properties(), toolchain_of(options), cached));
    ++(cached ? stats.cached_units : stats.compiled_units);
  }
  if (planned.has_compiler) {
    stage("build");
    const OutsideOfLoad waiting; // the compiler has limits of its own
    native = codegen::build_module(kernels_of_host(planned), chosen_isa(options), toolchain_of(options),
                                   [&](int done, int of) { stage("build", done, of); });
  }
  stage("bind");
  if (packed == PackedConstants::given_up)
    how.unread = [&](size_t constant) { runtime::give_up(*plan.executable, constant); };
  return timed(bind_program(plan, native, stats, how));
}

Portable compile_portable(const Graph& graph, const CompileOptions& options, std::optional<Isa> isa,
                          const Specialisation& made_for, const std::vector<std::string>& architectures) {
  CompileOptions how = options;
  how.compile = isa.has_value();
  how.tiered = false; // the file has the compiled kernels
  const Target target = isa ? target_of(options, *isa) : target_of(options);
  LoweredGraph lowered = or_throw(lower_for(graph, how, target, made_for, {}));
  Planned planned = plan_program(lowered, graph, how, For::any_device);
  Portable result;
  if (isa && !planned.emitted.empty()) {
    codegen::Toolchain toolchain = toolchain_of(options);
    toolchain.keep_bytes = true;
    const OutsideOfLoad waiting; // the compiler has limits of its own
    const std::vector<codegen::EmittedKernel> kernels = kernels_of_host(planned);
    if (!kernels.empty()) result.objects = codegen::build_module(kernels, *isa, toolchain)->bytes;
  }
  if (!planned.for_device.empty()) {
    const OutsideOfLoad waiting;
    const codegen::Toolchain toolchain = toolchain_of(options);
    device::Properties properties = planned.device->properties();
    for (const std::string& architecture : architectures) {
      properties.architecture = architecture;
      bool cached = false;
      result.binaries.emplace_back(
          architecture, codegen::cached_device_binary(planned.for_device, properties, toolchain, cached));
    }
    if (planned.device->properties().architecture.starts_with("sm_"))
      result.source = codegen::device_source(planned.for_device);
  }
  result.executable = std::move(planned.plan.executable);
  result.steps = std::move(planned.plan.steps);
  result.evaluated = std::move(planned.plan.evaluated);
  return result;
}

Compiled compile(const Source& source, const CompileOptions& options, const Specialisation& made_for) {
  CompileStats stats;
  Graph graph = prepare_graph(source, options, made_for.shapes, stats);
  return compile_program(or_throw(lower_graph(graph, options, made_for, std::move(stats))), graph, options,
                         PackedConstants::kept);
}

Signature signature_of(const Graph& graph) {
  auto entry = [&](ValueId id) {
    const Value& v = graph.at(id);
    runtime::SignatureEntry e{v.name, v.type.dtype, {}, {}, -1};
    e.ranked = v.type.shape.has_value();
    if (v.type.shape)
      for (ir::SymInt d : *v.type.shape) e.dims.push_back(ir::to_string(d));
    return e;
  };
  Signature s;
  for (ValueId id : graph.inputs) s.inputs.push_back(entry(id));
  for (ValueId id : graph.outputs) s.outputs.push_back(entry(id));
  return s;
}

namespace {

/// A stage behind lowering.
std::string dump_program(LoweredGraph lowered, const Graph& graph, const CompileOptions& options,
                         const std::string& stage) {
  const Target target = lowered.program.target;
  if (stage == "plan") return runtime::to_string(plan_program(lowered, graph, options).plan.executable);
  if (stage == "lower") return ir::to_string(lowered.program);
  fusion::Schedule schedule = schedule_program(std::move(lowered.program), options);
  if (stage == "schedule") return fusion::to_string(schedule);
  if (stage == "source")
    return source_text(codegen::prelude_cpp(target.isa), emit_all(schedule, emit_cpp_for(target), options));
  const Gpu gpu = target_of(options, target.isa, device_of(options).get()).gpu;
  const Emit emit = [&](const ir::KernelProgram& kernel) { return codegen::emit_cuda(kernel, gpu); };
  return source_text(codegen::prelude_cuda(), emit_all(schedule, emit, options));
}

/// The same of a graph that runs in segments, one after the other.
std::string dump_segments(Graph graph, const CompileOptions& options, const std::string& stage) {
  CompileOptions evaluated = options;
  evaluated.compile = false;
  ValueProgram program = compile_values(std::move(graph), evaluated);
  std::string text = stage == "plan" ? runtime::to_string(*program.plan) : "";
  for (size_t i = 0; i < program.segments.size(); ++i) {
    const Graph& part = program.segments[i]->graph();
    std::vector<InputKind> kinds;
    text += fmt::format("\n--- segment {}\n", i);
    if (program.segments[i]->specialiser().variants().empty() || !graph::declared_kinds(part, kinds)) {
      text += "compiled at the first run\n";
      continue;
    }
    const Graph copy = graph::copy_with(part, kinds, true);
    text += dump_program(or_throw(lower_graph(copy, options, {})), copy, options, stage);
  }
  return text;
}

} // namespace

std::string dump_stage(const Source& source, const CompileOptions& options, const std::string& stage) {
  static constexpr const char* kStages[] = {"import", "simplify", "lower", "schedule",
                                            "source", "cuda",     "plan"};
  TBX_MODEL(std::find(std::begin(kStages), std::end(kStages), stage) != std::end(kStages),
            "unknown stage '{}': expected import, simplify, lower, schedule, source, cuda or plan", stage);
  Graph graph = import_source(source, options);
  if (stage == "import") return to_string(graph);
  graph::run_graph_passes(graph, sort_disabled(options.disabled_passes).of_graph, pass_context(options));
  if (stage == "simplify") return to_string(graph);
  if (!graph::needs_values(graph)) {
    LowerResult lowered = lower_graph(graph, options, {});
    if (auto* program = std::get_if<LoweredGraph>(&lowered))
      return dump_program(std::move(*program), graph, options, stage);
  }
  return dump_segments(std::move(graph), options, stage);
}

} // namespace tbx::driver
