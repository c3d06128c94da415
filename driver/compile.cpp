#include "driver/compile.h"

#include <algorithm>
#include <functional>
#include <future>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/spare_memory.h"
#include "codegen/build_module.h"
#include "codegen/device_binary.h"
#include "driver/kept_plan.h"
#include "driver/limits.h"
#include "driver/passes.h"
#include "driver/plan_program.h"
#include "driver/state.h"
#include "driver/stopwatch.h"
#include "driver/target.h"
#include "extern_kernels/catalogue.h"
#include "extern_kernels/custom_operator.h"
#include "graph/partition/every_value.h"
#include "lowering/lower.h"
#include "lowering/op_registry.h"
#include "package/evaluated_module.h"
#include "package/session_impl.h"
#include "runtime/session.h"

namespace tbx::driver {

Graph import_source(const Source& source, const CompileOptions& options,
                    const std::map<std::string, std::vector<int64_t>>& shapes,
                    std::vector<InputDefault>* defaults) {
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
  import_options.places = source.places;
  if (const auto* path = std::get_if<std::filesystem::path>(&source.from))
    return import_model(*path, import_options);
  return import_model(std::get<std::span<const std::byte>>(source.from), import_options,
                      options.external_data_dir);
}

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
  graph::PassContext context = pass_context(options, isa);
  if (source.places)
    context.encoded = [&](const Tensor& from, const Tensor& to) { source.places->note_encoded(from, to); };
  for (const graph::PassResult& p :
       graph::run_graph_passes(graph, sort_disabled(options.disabled_passes).of_graph, context))
    stats.passes_ms.emplace_back(p.name, p.ms);
  put_state_last(graph, options);
  if (options.every_value) graph::show_every_value(graph);
  stats.optimize_ms = watch.lap();
  stats.total_ms = stats.import_ms + stats.optimize_ms;
  return graph;
}

namespace {

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

/// lower_graph() for any target.
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

/// A plan, with those of its kernels that are evaluated.
struct Bindable {
  explicit Bindable(PlanResult plan, package::KernelsFrom from = package::KernelsFrom::here)
      : executable(std::make_shared<runtime::Executable>(std::move(plan.executable))),
        steps(std::move(plan.steps)), evaluated(package::evaluated_module(std::move(plan.evaluated), from)) {}
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

namespace {

/// What is to be kept of a program; null: it cannot be.
std::shared_ptr<KeptProgram> record(PlanRecorder* recorder, const Planned& planned,
                                    const CompileOptions& options) {
  if (!recorder) return nullptr;
  if (planned.evaluated)
    recorder->refuse("kernels were not in the cache, and a tiered start began without them");
  if (options.compile && !planned.has_compiler && !planned.found)
    recorder->refuse("there is no C++ compiler, and not all kernels are in the cache");
  std::optional<KeptProgram> kept = recorder->record(planned.plan);
  return kept ? std::make_shared<KeptProgram>(std::move(*kept)) : nullptr;
}

} // namespace

Compiled compile_program(LoweredGraph lowered, const Graph& graph, const CompileOptions& options,
                         PackedConstants packed, PlanRecorder* recorder) {
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
  const std::shared_ptr<KeptProgram> kept = record(recorder, planned, options);
  if (planned.evaluated) {
    stage("bind");
    return timed(first_tier(std::move(planned), stats, options, packed));
  }
  std::shared_ptr<codegen::Module> native = planned.found;
  const Bindable plan(std::move(planned.plan));
  runtime::BindOptions how{.threads = options.threads,
                           .kernels = options.reference ? extern_kernels::Kernels::plain
                                                        : extern_kernels::Kernels::fastest,
                           .on = {planned.device, nullptr},
                           .max_memory = options.max_memory};
  if (planned.device) how.libraries = meanwhile(plan.executable, how);
  if (planned.device && !planned.for_device.empty()) {
    stage("build");
    const OutsideOfLoad waiting;
    const codegen::DeviceBinary binary = codegen::cached_device_binary(
        planned.for_device, planned.device->properties(), toolchain_of(options));
    how.on.kernels = planned.device->load(binary.code);
    ++(binary.cached ? stats.cached_units : stats.compiled_units);
    if (kept) kept->device_kernels = binary.key;
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
  if (kept && native) kept->native = native->units;
  Compiled made = timed(bind_program(plan, native, stats, how));
  made.kept = kept;
  return made;
}

std::optional<Compiled> bind_kept(ReadProgram program, const CompileOptions& options) {
  Stopwatch watch;
  std::shared_ptr<const codegen::Module> native;
  if (!program.native.empty() && !(native = codegen::module_of_units(program.native, toolchain_of(options))))
    return std::nullopt;
  CompileStats stats;
  stats.kept_plan = true;
  runtime::BindOptions how{
      .threads = options.threads, .on = {device_of(options), nullptr}, .max_memory = options.max_memory};
  std::optional<std::string> binary;
  if (!program.device_kernels.empty()) {
    binary = codegen::kept_device_binary(program.device_kernels, how.on.device->properties(),
                                         toolchain_of(options));
    if (!binary) return std::nullopt;
  }
  if (options.progress) options.progress("bind", 0, 0);
  require_spare_memory(); // for what libraries make of a question
  const Bindable plan(std::move(program.plan), package::KernelsFrom::file);
  if (how.on.device) how.libraries = meanwhile(plan.executable, how);
  if (binary) {
    how.on.kernels = how.on.device->load(*binary);
    ++stats.cached_units;
  }
  how.unread = [&](size_t constant) { runtime::give_up(*plan.executable, constant); };
  Compiled made = bind_program(plan, native, stats, how);
  made.stats.build_ms = made.stats.total_ms = watch.lap();
  return made;
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
      result.binaries.emplace_back(
          architecture, codegen::cached_device_binary(planned.for_device, properties, toolchain).code);
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

} // namespace tbx::driver
