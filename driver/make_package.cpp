#include "driver/make_package.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "runtime/executable_file.h"
#include "runtime/value_plan_file.h"

namespace tbx::driver {

using package::PartKind;

PackageMaker::PackageMaker(const CompileOptions& options, const PackageOptions& how) : options_(options) {
  if (options.reference)
    throw Error(ErrorKind::unsupported,
                "a reference session cannot be saved: no package computes by plain loops",
                "compile without the option reference");
  if (!options.device.empty() && options.device != "cpu")
    throw Error(ErrorKind::unsupported,
                fmt::format("a session on device '{}' cannot be saved: packages have kernels for CPUs alone",
                            options.device),
                "compile without the option device");
  std::vector<Isa> isas;
  for (const std::string& name : how.isas) {
    const std::optional<Isa> isa = isa_of_name(name);
    TBX_MODEL(isa.has_value(), "unknown isa '{}': expected avx512, avx2 or sse", name);
    isas.push_back(*isa);
  }
  if (how.isas.empty() && options.compile)
    isas.push_back(options.isa.empty() ? host_isa() : isa_of_name(options.isa).value_or(host_isa()));
  std::sort(isas.rbegin(), isas.rend());
  isas.erase(std::unique(isas.begin(), isas.end()), isas.end());
  targets_.assign(isas.begin(), isas.end());
  targets_.push_back(std::nullopt);
  index.version = version();
}

package::PackedProgram PackageMaker::pack(const Specialiser& specialiser, const Specialiser::Variant& variant,
                                          Assume assume, bool& assumes) {
  package::PackedProgram program{variant.made_for, {}};
  Specialisation made_for = variant.specialisation;
  program.made_for.assume = made_for.assume = assume;
  for (const std::optional<Isa>& isa : targets_) {
    // The graph is made anew each time: lowering changes what its sizes are made of.
    Portable p = compile_portable(specialiser.graph_of(variant), options_, isa, made_for);
    for (const runtime::PlanCheck& check : p.executable.checks) assumes |= check.assumption;
    package::PackedPlan& plan = program.plans.emplace_back();
    plan.isa = isa ? name_of(*isa) : "";
    plan.plan = writer_.add(PartKind::plan, runtime::to_bytes(p.executable, writer_.tensors()));
    for (std::string& object : p.objects)
      plan.objects.push_back(writer_.add(PartKind::object, std::move(object)));
    if (!p.evaluated.empty()) plan.programs = writer_.add(PartKind::programs, ir::to_bytes(p.evaluated));
    plan.steps = std::move(p.steps);
  }
  return program;
}

void PackageMaker::add_program(package::PackedStage& stage, const Specialiser& specialiser,
                               const Specialiser::Variant& variant) {
  bool assumes = false;
  const Assume assume = variant.specialisation.assume;
  stage.programs.push_back(pack(specialiser, variant, assume, assumes));
  if (!assumes || assume == Assume::nothing) return;
  try {
    stage.programs.push_back(pack(specialiser, variant, Assume::nothing, assumes));
  } catch (const Error& e) { // there is none for any inputs: a run that needs it says what it lacks
    if (e.kind() == ErrorKind::internal || e.kind() == ErrorKind::backend) throw;
    if (options_.log)
      options_.log(
          "runs of the package whose dimensions meet as 1 and more where the model does not say so end "
          "with an error: " +
          e.message());
  }
}

void PackageMaker::add_values(const ValueProgram& values) {
  std::vector<const runtime::TensorStage*> stages;
  for (size_t i = 0; i < values.segments.size(); ++i) {
    const Segment& segment = *values.segments[i];
    const std::vector<Specialiser::VariantPtr> variants = segment.specialiser().variants();
    if (variants.empty()) {
      const Graph& g = segment.graph();
      const std::string where =
          g.nodes.empty() ? "" : fmt::format(", which begins with {}", describe(g, g.nodes[0]));
      const std::vector<std::string> needs = segment.specialiser().needs(true);
      throw Error(
          ErrorKind::unsupported,
          fmt::format("a part of the model{} is compiled for what a run brings: {}", where,
                      needs.empty() ? "the ranks of its inputs are not known before"
                                    : fmt::format("its code depends on '{}'", fmt::join(needs, "', '"))),
          "run the session once with such inputs before saving it (tbx compile: give them with --input)");
    }
    package::PackedStage& stage = index.stages.emplace_back();
    for (const auto& v : variants) add_program(stage, segment.specialiser(), *v);
    stages.push_back(&segment);
  }
  index.values = writer_.add(PartKind::values, runtime::to_bytes(*values.plan, stages, writer_.tensors()));
}

PackageReport PackageMaker::write(const std::string& file) {
  PackageReport report;
  report.bytes = writer_.write(file, index);
  report.constant_bytes = writer_.bytes_of(PartKind::constants);
  report.kernel_bytes = writer_.bytes_of(PartKind::object);
  for (const package::PackedStage& s : index.stages) report.programs += static_cast<int>(s.programs.size());
  for (const std::optional<Isa>& isa : targets_)
    if (isa) report.isas.emplace_back(name_of(*isa));
  return report;
}

} // namespace tbx::driver
