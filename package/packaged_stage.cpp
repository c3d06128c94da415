#include "package/packaged_stage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>

#include "base/archive.h"
#include "base/error.h"
#include "base/isa.h"
#include "device/cuda/nvrtc.h"
#include "package/evaluated_module.h"
#include "package/native_module.h"
#include "runtime/executable_file.h"

namespace tbx::package {

using runtime::Assume;

namespace {

/// All that a run needs of a plan; its parts are read when it is made.
class PlanReader {
public:
  PlanReader(const Package& package, const PackedPlan& plan, const RunWith& how)
      : executable(std::make_shared<const runtime::Executable>(
            runtime::from_bytes(package.part(plan.plan, PartKind::plan), package.tensors()))),
        steps(plan.steps) {
    for (const runtime::Step& step : executable->steps)
      if (plan.device.empty() && step.device != runtime::DeviceKind::cpu)
        archive::damaged("a step is for another device");
    for (const runtime::BufferPlan& buffer : executable->buffers)
      if (plan.device.empty() && buffer.device != runtime::DeviceKind::cpu)
        archive::damaged("a buffer lies on another device");
    if (steps.size() != executable->steps.size()) archive::damaged("the report does not fit the plan");
    for (int32_t part : plan.objects) objects.push_back(package.part(part, PartKind::object));
    if (plan.programs >= 0)
      evaluated = evaluated_module(ir::kernels_from_bytes(package.part(plan.programs, PartKind::programs)),
                                   KernelsFrom::file);
    if (!objects.empty() && how.device) check_host(plan.isa);
    on = {how.device, nullptr};
    if (how.device && !plan.binaries.empty()) on.kernels = how.device->load(binary_for(package, plan, how));
  }

  std::unique_ptr<Program> bind(const runtime::SessionOptions& options) const {
    std::vector<std::shared_ptr<const runtime::Module>> modules;
    if (!objects.empty()) modules.push_back(std::make_shared<const NativeModule>(objects));
    if (evaluated) modules.push_back(evaluated);
    auto program = std::make_unique<Program>();
    program->bound = runtime::bind(executable, std::move(modules),
                                   {.threads = options.threads, .on = on, .max_memory = options.max_memory});
    program->steps = steps;
    describe(*program->bound, program->steps);
    program->session = std::make_unique<runtime::Session>(program->bound, options);
    return program;
  }

  std::shared_ptr<const runtime::Executable> executable;
  std::vector<runtime::StepInfo> steps;
  std::vector<std::span<const std::byte>> objects;
  std::shared_ptr<const runtime::Module> evaluated;
  runtime::DeviceModule on;

private:
  /// What the host does in the plan of a device is native code.
  static void check_host(const std::string& isa) {
    const std::optional<Isa> needed = isa_of_name(isa);
    if (!needed) archive::damaged("a plan for a device lacks its instruction set");
    if (*needed > host_isa())
      throw Error(ErrorKind::backend,
                  fmt::format("the package's kernels for the host are for '{}', this CPU runs '{}'", isa,
                              name_of(host_isa())),
                  fmt::format("make the package with --isa {}", name_of(host_isa())));
  }

  /// Machine code for the device; for another architecture than those that the package has, made of its text.
  static std::string binary_for(const Package& package, const PackedPlan& plan, const RunWith& how) {
    const std::string& wanted = how.device->properties().architecture;
    std::vector<std::string> has;
    for (const auto& [architecture, part] : plan.binaries) {
      has.push_back(architecture);
      if (architecture != wanted) continue;
      const auto bytes = package.part(part, PartKind::binary);
      return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    }
    const std::string said = fmt::format("the package has kernels for {}, {} is {}", fmt::join(has, ", "),
                                         how.device->properties().name, wanted);
    if (plan.source < 0 || !wanted.starts_with("sm_"))
      throw Error(ErrorKind::backend, said, "make the package where such a device is");
    if (how.log) how.log(said + ": they are compiled for it by NVRTC");
    const auto text = package.part(plan.source, PartKind::source);
    return device::cuda::compile({reinterpret_cast<const char*>(text.data()), text.size()}, wanted);
  }
};

const PackedPlan& plan_for(const PackedProgram& program, const RunWith& how) {
  for (const PackedPlan& p : program.plans)
    if (how.device ? !p.device.empty() : p.device.empty() && p.isa == how.isa) return p;
  archive::damaged("a program lacks a plan that others have");
}

} // namespace

struct PackagedStage::Variant {
  Variant(const Package& package, const PackedProgram& program, const RunWith& how)
      : made_for(program.made_for), plan(package, plan_for(program, how), how) {
    if (!made_for.is_of(plan.executable->inputs.size()))
      archive::damaged("a program is made for other inputs than it has");
  }

  std::shared_ptr<const Program> bound(const runtime::SessionOptions& options) {
    std::lock_guard lock(mutex);
    if (!program) program = plan.bind(options);
    return program;
  }
  std::shared_ptr<const Program> bound_so_far() const {
    std::lock_guard lock(mutex);
    return program;
  }

  const runtime::MadeFor made_for;
  const PlanReader plan;
  mutable std::mutex mutex;
  std::shared_ptr<const Program> program;
};

PackagedStage::PackagedStage(std::shared_ptr<const Package> package, const PackedStage& stage,
                             const RunWith& how, std::string what)
    : package_(std::move(package)), how_(how), what_(std::move(what)) {
  for (const PackedProgram& p : stage.programs)
    variants_.push_back(std::make_unique<Variant>(*package_, p, how_));
  if (variants_.empty()) archive::damaged("a part has no program");
}

PackagedStage::~PackagedStage() = default;

runtime::StageParts PackagedStage::parts() const {
  const runtime::Executable& first = *variants_[0]->plan.executable;
  runtime::StageParts parts{first.inputs.size(), first.outputs.size(), {}};
  for (const auto& v : variants_) parts.executables.push_back(v->plan.executable.get());
  return parts;
}

void PackagedStage::prepare() const {
  for (const auto& v : variants_)
    if (v->made_for.kinds.empty()) {
      v->bound(how_.session);
      return;
    }
}

std::shared_ptr<const Program> PackagedStage::program_for(std::span<const runtime::RunTensor> inputs,
                                                          Assume assume) const {
  for (const auto& v : variants_)
    if (v->made_for.assume <= assume && v->made_for.fits(inputs)) return v->bound(how_.session);
  throw Error(
      ErrorKind::unsupported,
      fmt::format("the package has no code for these inputs: {} was compiled for {} kind(s) of values or "
                  "shapes of inputs, and these are others",
                  what_, variants_.size()),
      "`tbx explain` says what the package is made for: save it from a session that has run such inputs, or "
      "run the ONNX model");
}

void PackagedStage::run(std::span<const runtime::RunTensor> inputs, std::span<runtime::RunTensor> outputs,
                        const runtime::RunOptions& options) const {
  for (Assume assume = Assume::broadcast_too;; assume = less_than(assume)) {
    const auto program = program_for(inputs, assume);
    try {
      return program->session->run(inputs, outputs, options);
    } catch (const runtime::AssumptionError&) {
      if (assume == Assume::nothing) throw;
    }
  }
}

std::vector<std::shared_ptr<const Program>> PackagedStage::programs() const {
  std::vector<std::shared_ptr<const Program>> all;
  for (const auto& v : variants_)
    if (auto p = v->bound_so_far()) all.push_back(std::move(p));
  return all;
}

} // namespace tbx::package
