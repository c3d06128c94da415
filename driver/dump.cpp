// Texts of a model at each stage.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <variant>

#include "base/error.h"
#include "driver/passes.h"
#include "driver/plan_program.h"
#include "driver/specialiser.h"
#include "driver/target.h"
#include "driver/value_compile.h"
#include "graph/partition/value_graph.h"

namespace tbx::driver {

namespace {

/// The prelude and every distinct kernel.
std::string source_text(std::string text, const std::vector<codegen::EmittedKernel>& kernels) {
  std::set<std::string> seen;
  for (const codegen::EmittedKernel& k : kernels)
    if (!k.function.empty() && seen.insert(k.function).second) text += "\n" + k.text;
  return text;
}

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
