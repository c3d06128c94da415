#include "driver/place.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/error.h"
#include "codegen/device_binary.h"
#include "extern_kernels/cuda/select.h"
#include "runtime/bind.h"

namespace tbx::driver {

using runtime::BufferPlan;
using runtime::CopyStep;
using runtime::DeviceKind;
using runtime::ExternStep;
using runtime::KernelStep;
using runtime::StorageKind;

namespace {

class Placer {
public:
  Placer(PlanResult& plan, const std::vector<codegen::EmittedKernel>& emitted,
         const std::vector<codegen::EmittedKernel>& for_device, device::Device& device)
      : plan_(plan), executable_(plan.executable), emitted_(emitted), device_(device) {
    for (const codegen::EmittedKernel& k : for_device) for_device_.insert(k.function);
  }

  void run() {
    for (size_t s = 0; s < executable_.steps.size(); ++s) choose(executable_.steps[s], plan_.steps[s]);
    place_buffers();
    std::vector<runtime::Step> steps = std::move(executable_.steps);
    std::vector<StepInfo> infos = std::move(plan_.steps);
    executable_.steps.clear();
    plan_.steps.clear();
    upload_inputs(steps);
    for (size_t s = 0; s < steps.size(); ++s) add(std::move(steps[s]), std::move(infos[s]));
    for (const runtime::SignatureEntry& out : executable_.outputs)
      bring(out.buffer, DeviceKind::cpu, {}, "an output");
    set_lifetimes(executable_);
  }

private:
  // --- where steps run

  void choose(runtime::Step& step, StepInfo& info) {
    std::string why_not;
    if (auto* kernel = std::get_if<KernelStep>(&step.what))
      why_not = choose_kernel(*kernel, emitted_[kernel_++]);
    else
      why_not = choose_extern(std::get<ExternStep>(step.what), info);
    if (why_not.empty()) {
      step.device = DeviceKind::cuda;
      return;
    }
    info.decisions.push_back("on the host: " + why_not);
    // What TF32 allows is less than what `any` allows the host.
    if (auto* call = std::get_if<ExternStep>(&step.what)) {
      if (auto* conv = std::get_if<extern_kernels::ConvProblem>(&call->problem))
        conv->precision = extern_kernels::Precision::strict;
      if (auto* product = std::get_if<extern_kernels::MatMulProblem>(&call->problem))
        product->precision = extern_kernels::Precision::strict;
    }
  }

  /// `k` is that of the step itself: others of the same text have other numbers of tasks.
  std::string choose_kernel(KernelStep& step, const codegen::EmittedKernel& k) const {
    if (!for_device_.contains(k.function)) return "the kernel has no form for the device";
    const ir::SymInt most = codegen::most_blocks(!k.scratch_bytes.is(0), device_.properties());
    const ir::SymInt blocks = ir::ceildiv(k.tasks, ir::SymInt(codegen::teams_of_block(k)));
    step.launch.blocks = size_expr(ir::max(ir::SymInt(1), ir::min(blocks, most)));
    step.launch.threads = k.block_threads;
    step.launch.shared_bytes = k.shared_bytes;
    step.launch.overlaps = k.overlaps;
    step.launch.teams = k.team == codegen::Team::warp ? k.block_threads / 32 : 1;
    return {};
  }

  std::string choose_extern(const ExternStep& step, StepInfo& info) {
    if (!step.dynamic_outputs.empty()) return "the sizes of its results depend on data";
    auto facts = [&](const std::vector<runtime::OperandView>& views) {
      std::vector<extern_kernels::OperandInfo> all;
      all.reserve(views.size());
      for (const auto& v : views) all.push_back(runtime::operand_facts(executable_, v));
      return all;
    };
    const auto in = facts(step.inputs), out = facts(step.outputs);
    if (extern_kernels::device_candidates(step.problem).empty())
      return fmt::format("{} has no kernel for the device", extern_kernels::name_of(step.problem));
    try {
      const auto& candidate =
          *extern_kernels::choose_on_gpu(step.problem, in, out, device_.properties()).candidate;
      if (extern_kernels::multiplies_tf32(candidate, step.problem, in))
        info.decisions.push_back("operands of float32 are rounded to TF32");
      return {};
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::unsupported) throw;
      return e.message();
    }
  }

  // --- where buffers lie

  struct Place {
    bool on[2] = {};          ///< by DeviceKind: some step there uses it
    int buffer[2] = {-1, -1}; ///< where it lies there
    bool valid[2] = {};       ///< its contents there are those that count
    bool written = false;
  };

  static size_t index(DeviceKind d) { return d == DeviceKind::cpu ? 0 : 1; }

  void place_buffers() {
    const size_t n = executable_.buffers.size();
    places_.resize(n);
    for (const runtime::Step& step : executable_.steps)
      runtime::for_each_buffer(step, [&](int b, bool) { places_[b].on[index(step.device)] = true; });
    for (size_t b = 0; b < n; ++b) {
      Place& p = places_[b];
      const StorageKind storage = executable_.buffers[b].storage;
      const bool edge = storage == StorageKind::input || storage == StorageKind::output;
      if (storage == StorageKind::input) p.written = p.valid[0] = true;
      if (storage == StorageKind::constant) p.written = p.valid[0] = p.valid[1] = true;
      p.buffer[0] = p.buffer[1] = static_cast<int>(b);
      if (!p.on[1]) continue;
      if (!p.on[0] && !edge) {
        executable_.buffers[b].device = DeviceKind::cuda;
        continue;
      }
      BufferPlan twin = executable_.buffers[b];
      twin.name.clear();
      twin.device = DeviceKind::cuda;
      if (edge) twin.storage = StorageKind::arena, twin.index = -1;
      p.buffer[1] = static_cast<int>(executable_.buffers.size());
      executable_.buffers.push_back(std::move(twin));
    }
  }

  void upload_inputs(const std::vector<runtime::Step>& steps) {
    std::set<int> read; // on the device, before anything else is written there
    for (const runtime::Step& step : steps)
      runtime::for_each_buffer(step, [&](int b, bool) {
        if (step.device != DeviceKind::cpu) read.insert(b);
      });
    for (const runtime::SignatureEntry& in : executable_.inputs)
      if (read.contains(in.buffer)) bring(in.buffer, DeviceKind::cuda, {}, "an input");
  }

  /// A copy of buffer `b` to the device `to`, where what lies there does not count.
  void bring(int b, DeviceKind to, const std::vector<int>& origins, const char* why) {
    Place& p = places_[b];
    const size_t t = index(to);
    if (!p.written || p.valid[t] || p.buffer[0] == p.buffer[1]) return;
    StepInfo info;
    info.name = to == DeviceKind::cpu ? "copy to the host" : "copy to the device";
    info.kind = "copy";
    info.origins = origins;
    info.decisions.emplace_back(why);
    executable_.steps.push_back({CopyStep{p.buffer[1 - t], p.buffer[t]}, origins, DeviceKind::cuda});
    plan_.steps.push_back(std::move(info));
    p.valid[t] = true;
  }

  void add(runtime::Step step, StepInfo info) {
    const size_t here = index(step.device);
    const char* why = step.device == DeviceKind::cpu ? "the host reads it" : "the device reads it";
    // What is written in part keeps the rest, so results come as well where there is something already.
    runtime::for_each_buffer(step, [&](int b, bool) { bring(b, step.device, step.origins, why); });
    runtime::for_each_buffer(step, [&](int b, bool writes) {
      if (!writes) return;
      Place& p = places_[b];
      p.written = p.valid[here] = true;
      p.valid[1 - here] = p.buffer[0] == p.buffer[1];
    });
    if (step.device != DeviceKind::cpu) rename(step);
    executable_.steps.push_back(std::move(step));
    plan_.steps.push_back(std::move(info));
  }

  /// The step's buffers are those on the device.
  void rename(runtime::Step& step) const {
    auto there = [&](int& b) {
      if (b >= 0) b = places_[b].buffer[1];
    };
    if (auto* kernel = std::get_if<KernelStep>(&step.what)) {
      for (int& b : kernel->buffers) there(b);
      return;
    }
    auto& call = std::get<ExternStep>(step.what);
    for (auto* views : {&call.inputs, &call.outputs})
      for (runtime::OperandView& v : *views) there(v.buffer);
  }

  PlanResult& plan_;
  runtime::Executable& executable_;
  const std::vector<codegen::EmittedKernel>& emitted_;
  size_t kernel_ = 0; ///< generated kernels that have a place already
  device::Device& device_;
  std::set<std::string> for_device_;
  std::vector<Place> places_; ///< by buffer of the plan as it came
};

} // namespace

void place(PlanResult& plan, const std::vector<codegen::EmittedKernel>& emitted,
           const std::vector<codegen::EmittedKernel>& for_device, device::Device& device) {
  Placer(plan, emitted, for_device, device).run();
}

} // namespace tbx::driver
