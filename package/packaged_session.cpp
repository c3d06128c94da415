// Session::load: a session of a package.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/archive.h"
#include "base/error.h"
#include "base/isa.h"
#include "base/printable.h"
#include "package/guarded.h"
#include "package/packaged_stage.h"
#include "runtime/value_plan_file.h"
#include "runtime/verify.h"

namespace tbx {
namespace package {
namespace {

/// The plans to use of those that the package has. Where they are to be native and are not, `not_compiled`
/// says why.
std::string chosen_isa(const PackageIndex& index, const LoadOptions& options, std::string& not_compiled) {
  std::vector<std::string> native;
  if (index.stages.empty()) return ""; // there are steps of values alone
  if (index.stages[0].programs.empty()) archive::damaged("it has no program");
  for (const PackedPlan& p : index.stages[0].programs[0].plans)
    if (!p.isa.empty()) native.push_back(p.isa);
  const std::string has = native.empty() ? "none" : fmt::format("{}", fmt::join(native, ", "));
  TBX_MODEL(!options.evaluate || options.isa.empty(), "option isa is given with evaluate: one of the two");
  if (options.evaluate) return "";
  const Isa best = host_isa();
  if (!options.isa.empty()) {
    const std::optional<Isa> wanted = isa_of_name(options.isa);
    TBX_MODEL(wanted.has_value(), "unknown isa '{}': expected avx512, avx2 or sse", options.isa);
    TBX_MODEL(*wanted <= cpu_isa(), "this CPU does not run isa '{}'; its best is '{}'", options.isa,
              name_of(cpu_isa()));
    if (std::find(native.begin(), native.end(), options.isa) == native.end())
      throw Error(ErrorKind::model,
                  fmt::format("the package has no kernels for isa '{}'; it has: {}", options.isa, has),
                  fmt::format("compile it with --isa {}, or leave the option out", options.isa));
    return options.isa;
  }
  std::optional<Isa> found;
  for (const std::string& name : native)
    if (const auto isa = isa_of_name(name); isa && *isa <= best && (!found || *isa > *found)) found = isa;
  if (found) return name_of(*found);
  not_compiled = fmt::format(
      "the package has no kernels for this CPU ({}; it has: {}): they run in the evaluator, which is slower",
      name_of(best), has);
  return "";
}

/// The device of the package's plans, which is the caller's to name: none for plans of CPUs.
std::shared_ptr<device::Device> chosen_device(const PackageIndex& index, const LoadOptions& options) {
  const PackedPlan* there = nullptr;
  for (const PackedStage& stage : index.stages)
    for (const PackedProgram& program : stage.programs)
      for (const PackedPlan& plan : program.plans)
        if (!plan.device.empty()) there = &plan;
  const bool wanted = !options.device.empty() && options.device != "cpu";
  if (!there && wanted)
    throw Error(
        ErrorKind::model,
        fmt::format("option device is '{}', and the package has kernels for CPUs alone", options.device),
        "make it with the option device (tbx compile --device cuda)");
  if (!there) return nullptr;
  std::vector<std::string> has;
  for (const auto& [architecture, part] : there->binaries) has.push_back(architecture);
  if (!wanted)
    throw Error(ErrorKind::model,
                fmt::format("the package is for a GPU ({})",
                            has.empty() ? "any" : fmt::format("{}", fmt::join(has, ", "))),
                "load it with device=\"cuda\", or compile the model without the option device");
  TBX_MODEL(!options.evaluate, "the evaluator runs no package for a GPU: option evaluate is given");
  TBX_MODEL(options.isa.empty(), "option isa is given for a package for a GPU");
  return device::open(options.device);
}

class PackagedSession final : public Session::Impl {
public:
  PackagedSession(const std::string& file, const LoadOptions& options) : package_(Package::open(file)) {
    check_threads(options.threads);
    TBX_MODEL(options.max_memory >= 0 && options.time_limit_ms >= 0, "a limit is negative");
    std::function<void(const std::string&)> log;
    if (options.log) log = [to = options.log](const std::string& text) { to(printable(text, Lines::kept)); };
    const PackageIndex& index = package_->index();
    run_with = {.threads = options.threads,
                .private_arena = options.private_threads,
                .max_memory = options.max_memory,
                .log = log};
    time_limit_ms = options.time_limit_ms;
    random = std::make_unique<RandomStreams>(seed_of(options.seed));
    inputs = index.inputs;
    outputs = index.outputs;
    overridable_initializers = index.overridable_initializers;
    metadata = index.metadata;
    defaults = index.defaults;
    for (size_t i = 0; i < inputs.size(); ++i) {
      input_index[inputs[i].name] = i;
      auto given = defaults.find(inputs[i].name);
      if (inputs[i].has_default && (given == defaults.end() || !given->second))
        archive::damaged("the default of an input is missing");
    }
    device = chosen_device(index, options);
    const RunWith how{device ? std::string() : chosen_isa(index, options, not_compiled_), device, log,
                      run_with};
    if (log && !not_compiled_.empty()) log(not_compiled_);
    for (size_t i = 0; i < index.stages.size(); ++i) {
      stages_.push_back(std::make_shared<const PackagedStage>(
          package_, index.stages[i], how,
          index.stages.size() == 1 ? "the model" : fmt::format("part {} of the model", i)));
    }
    std::shared_ptr<const runtime::ValuePlan> values;
    if (index.values >= 0)
      values = std::make_shared<const runtime::ValuePlan>(runtime::value_plan_from_bytes(
          package_->part(index.values, PartKind::values), package_->tensors()));
    check(values.get());
    if (!values) {
      stages_[0]->prepare();
      if (const auto bound = stages_[0]->programs(); !bound.empty())
        state = KeptState::of(*bound[0]->bound->executable, bound[0]->bound->on_device ? device : nullptr,
                              run_with.max_memory);
      return;
    }
    value_session =
        std::make_unique<runtime::ValueSession>(runtime::bind(values, {stages_.begin(), stages_.end()}));
  }

  CompileStats stats() const override {
    CompileStats all = package_->index().stats;
    all.not_compiled = not_compiled_;
    return all;
  }

  std::vector<std::string> made_for() const override {
    std::vector<std::string> all;
    for (const auto& [name, value] : package_->index().options)
      if (name == kMadeFor) all.push_back(value);
    return all;
  }

  std::string dump(const std::string& stage) const override {
    if (stage != "plan")
      throw Error(ErrorKind::unsupported, fmt::format("a package has no stage '{}'", stage),
                  "'plan' is the one that it has; the others need the ONNX model");
    const PackageIndex& index = package_->index();
    std::string text = fmt::format("package of tensorbox {}\n", index.version);
    for (const auto& [name, value] : index.options) text += fmt::format("option: {} {}\n", name, value);
    if (value_session) text += runtime::to_string(value_session->plan());
    for (size_t i = 0; i < stages_.size(); ++i)
      for (const auto& p : stages_[i]->programs())
        text += (stages_.size() > 1 ? fmt::format("--- part {}\n", i) : "") +
                runtime::to_string(*p->bound->executable);
    return text;
  }

  PackageReport save(const std::string&, const PackageOptions&) const override {
    throw Error(ErrorKind::unsupported, "this session is one of a package, which cannot be made into another",
                "copy the file, or compile the ONNX model");
  }

protected:
  std::shared_ptr<const Program> program_for(const std::vector<runtime::RunTensor>& given,
                                             runtime::Assume assume) const override {
    return stages_[0]->program_for(given, assume);
  }

  std::vector<std::shared_ptr<const Program>> programs() const override {
    std::vector<std::shared_ptr<const Program>> all;
    for (const auto& stage : stages_)
      for (auto& p : stage->programs()) all.push_back(std::move(p));
    return all;
  }

  std::vector<std::shared_ptr<const Program>> compiled() const override { return programs(); }

private:
  /// What was read, before any of it is bound.
  void check(const runtime::ValuePlan* values) const {
    std::vector<runtime::StageParts> parts;
    for (const auto& stage : stages_) parts.push_back(stage->parts());
    if (const std::string defect = runtime::defect_of({std::move(parts), values}); !defect.empty())
      archive::damaged(defect.c_str());
    if (values && (values->inputs.size() != inputs.size() || values->outputs.size() != outputs.size()))
      archive::damaged("the plan of values has another signature");
  }

  std::shared_ptr<const Package> package_;
  std::string not_compiled_;
  std::vector<std::shared_ptr<const PackagedStage>> stages_;
};

} // namespace
} // namespace package

Result<Session> Session::load(const std::string& package_file, const LoadOptions& options) {
  return package::guarded(
      [&] { return Session(std::make_shared<package::PackagedSession>(package_file, options)); });
}

} // namespace tbx
