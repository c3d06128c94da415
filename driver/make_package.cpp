#include "driver/make_package.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "driver/target.h"
#include "runtime/executable_file.h"
#include "runtime/value_plan_file.h"

namespace tbx::driver {

using package::PartKind;

namespace {

constexpr const char* kForInputsSeen =
    "the option for_inputs_seen (tbx compile --for-inputs-seen): for inputs like those alone";

} // namespace

PackageMaker::PackageMaker(const CompileOptions& options, const PackageOptions& how)
    : options_(options), for_inputs_seen_(how.for_inputs_seen) {
  if (options.reference)
    throw Error(ErrorKind::unsupported,
                "a reference session cannot be saved: no package computes by plain loops",
                "compile without the option reference");
  if (const std::shared_ptr<device::Device> device = device_of(options)) {
    const std::string& own = device->properties().architecture;
    architectures_ = how.architectures;
    if (architectures_.empty()) architectures_.push_back(own);
    for (const std::string& architecture : architectures_)
      TBX_MODEL(architecture == own || (architecture.starts_with("sm_") && own.starts_with("sm_")),
                "unknown architecture '{}': expected one like {}", architecture,
                own.starts_with("sm_") ? own : own + ", which is that of the session's device");
    TBX_MODEL(how.isas.size() <= 1, "a package for a GPU has the host's kernels for one isa; {} are given",
              how.isas.size());
  } else {
    TBX_MODEL(how.architectures.empty(),
              "option architectures is given for a session on the CPU: compile with the option device");
  }
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
  for (const Isa isa : isas)
    if (const std::string note = precision_note(options, isa); options.log && !note.empty())
      options.log(note);
  targets_.assign(isas.begin(), isas.end());
  if (architectures_.empty()) targets_.push_back(std::nullopt);
  index.version = version();
}

package::PackedProgram PackageMaker::pack(const Specialiser& specialiser, const Specialiser::Variant& variant,
                                          Assume assume, bool& assumes) {
  package::PackedProgram program{variant.made_for, {}};
  Specialisation made_for = variant.specialisation;
  program.made_for.assume = made_for.assume = assume;
  for (const std::optional<Isa>& isa : targets_) {
    // The graph is made anew each time: lowering changes what its sizes are made of.
    Portable p =
        compile_portable(specialiser.graph_of(variant, isa), options_, isa, made_for, architectures_);
    for (const runtime::PlanCheck& check : p.executable.checks) assumes |= check.assumption;
    package::PackedPlan& plan = program.plans.emplace_back();
    plan.isa = isa ? name_of(*isa) : "";
    plan.plan = writer_.add(PartKind::plan, runtime::to_bytes(p.executable, writer_.tensors()));
    for (std::string& object : p.objects)
      plan.objects.push_back(writer_.add(PartKind::object, std::move(object)));
    if (!architectures_.empty()) plan.device = "cuda";
    for (auto& [architecture, binary] : p.binaries)
      plan.binaries.emplace_back(architecture, writer_.add(PartKind::binary, std::move(binary)));
    if (!p.source.empty()) plan.source = writer_.add(PartKind::source, std::move(p.source));
    if (!p.evaluated.empty()) plan.programs = writer_.add(PartKind::programs, ir::to_bytes(p.evaluated));
    plan.steps = std::move(p.steps);
  }
  return program;
}

void PackageMaker::note(const std::string& made_for) {
  std::pair<std::string, std::string> entry{package::kMadeFor, made_for};
  if (std::find(index.options.begin(), index.options.end(), entry) == index.options.end())
    index.options.push_back(std::move(entry));
}

std::optional<Error> PackageMaker::try_program(package::PackedStage& stage, const Specialiser& specialiser,
                                               const Specialiser::Variant& variant, Assume assume) {
  try {
    bool unused = false;
    stage.programs.push_back(pack(specialiser, variant, assume, unused));
    return std::nullopt;
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::internal || e.kind() == ErrorKind::backend) throw;
    return e;
  }
}

bool PackageMaker::add_program(package::PackedStage& stage, const Specialiser& specialiser,
                               const Specialiser::Variant& variant, const std::string& where) {
  bool assumes = false;
  const Assume assume = variant.specialisation.assume;
  stage.programs.push_back(pack(specialiser, variant, assume, assumes));
  if (!assumes || assume == Assume::nothing) return true;
  const std::optional<Error> none = try_program(stage, specialiser, variant, Assume::nothing);
  if (!none || none->kind() == ErrorKind::model) return true; // no session runs such inputs
  const bool of_any_dimensions =
      assume == Assume::exact_floats || !try_program(stage, specialiser, variant, Assume::exact_floats);
  const bool of_several = std::any_of(variant.made_for.kinds.begin(), variant.made_for.kinds.end(),
                                      [](const runtime::InputKind& kind) { return !kind.several.empty(); });
  const char* only = of_any_dimensions && !of_several
                         ? "sizes that floats hold exactly, where they pass through floats"
                         : "dimensions that are equal where they meet, and as assumed where "
                           "a squeeze depends on them";
  // Sizes that floats do not hold are above 2^24: said, and no reason to refuse all others.
  if (!for_inputs_seen_ && !of_any_dimensions)
    throw Error(ErrorKind::unsupported,
                fmt::format("{} is compiled for {}; for others there is no code before a run: {}", where,
                            only, none->message()),
                std::string("fix dimensions (--dim), or save it with ") + kForInputsSeen);
  note(fmt::format("{}: {}", where, only));
  if (options_.log) options_.log(fmt::format("the package is made for {} ({})", only, where));
  return of_any_dimensions;
}

void PackageMaker::add_stage(const Specialiser& specialiser, const Coverage& all, const std::string& where) {
  const std::vector<std::string> needs = specialiser.needs(false);
  const std::string depends =
      needs.empty() ? "its code depends on the shapes of its inputs"
                    : fmt::format("its code depends on the values of '{}'", fmt::join(needs, "', '"));
  if (all.variants.empty())
    throw Error(
        ErrorKind::unsupported, fmt::format("{} is compiled for what a run brings: {}", where, depends),
        for_inputs_seen_
            ? "run the session once with such inputs before saving it (tbx compile: give them with "
              "--input), or fix dimensions (--dim)"
            : std::string("fix dimensions (--dim), or run the session once with such inputs (tbx compile: "
                          "give them with --input) and save it with ") +
                  kForInputsSeen);
  if (!all.complete && !for_inputs_seen_)
    throw Error(
        ErrorKind::unsupported,
        fmt::format("{} is compiled for what a run brings: {}, and there is code for the {} kind(s) of "
                    "inputs of the runs so far alone",
                    where, depends, all.variants.size()),
        std::string("fix dimensions (--dim), or save it with ") + kForInputsSeen);
  package::PackedStage& stage = index.stages.emplace_back();
  bool any_inputs = all.complete;
  for (const auto& v : all.variants) any_inputs &= add_program(stage, specialiser, *v, where);
  if (any_inputs) return;
  for (const auto& v : all.variants)
    if (!v->made_for.kinds.empty())
      note(fmt::format("{}: {}", where, text_of(v->made_for, specialiser.inputs())));
}

void PackageMaker::add_values(const ValueProgram& values) {
  for (const auto& segment : values.segments) {
    const Graph& g = segment->graph();
    Coverage all = compiled_variants(segment->specialiser());
    if (!all.complete && (!for_inputs_seen_ || all.variants.empty()))
      all = all_variants(segment->specialiser(), g);
    add_stage(segment->specialiser(), all,
              g.nodes.empty()
                  ? "a part of the model"
                  : fmt::format("the part of the model that begins with {}", describe(g, g.nodes[0])));
  }
  index.values = writer_.add(PartKind::values, runtime::to_bytes(*values.plan, writer_.tensors()));
}

PackageReport PackageMaker::write(const std::string& file) {
  PackageReport report;
  report.bytes = writer_.write(file, index);
  report.constant_bytes = writer_.bytes_of(PartKind::constants);
  report.kernel_bytes = writer_.bytes_of(PartKind::object) + writer_.bytes_of(PartKind::binary);
  report.architectures = architectures_;
  for (const package::PackedStage& s : index.stages) report.programs += static_cast<int>(s.programs.size());
  for (const std::optional<Isa>& isa : targets_)
    if (isa) report.isas.emplace_back(name_of(*isa));
  return report;
}

} // namespace tbx::driver
