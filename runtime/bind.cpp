#include "runtime/bind.h"

#include <algorithm>

#include "base/error.h"
#include "extern_kernels/cuda/select.h"

namespace tbx::runtime {
namespace {

std::shared_ptr<const Tensor> constant_of(const Executable& executable, const OperandView& view) {
  const BufferPlan& buffer = executable.buffers[view.buffer];
  const bool from_start = view.offset.is_constant() && view.offset.items[0].value == 0;
  return buffer.storage == StorageKind::constant && from_start ? executable.constants[buffer.index] : nullptr;
}

Kernel kernel_of(const std::vector<std::shared_ptr<const Module>>& modules, const std::string& name) {
  for (const auto& module : modules)
    if (Kernel k = module->kernel(name)) return k;
  throw_backend_error("no module has the kernel {}", name);
}

/// On a device, where there is one.
BoundStep bind_extern(const Executable& executable, const ExternStep& step, extern_kernels::Kernels kernels,
                      device::Device* device) {
  auto facts = [&](const std::vector<OperandView>& views) {
    std::vector<extern_kernels::OperandInfo> all;
    all.reserve(views.size());
    for (const OperandView& v : views) all.push_back(operand_facts(executable, v));
    return all;
  };
  const auto in = facts(step.inputs), out = facts(step.outputs);
  extern_kernels::Selection s = device ? extern_kernels::select_on(*device, step.problem, in, out)
                                       : extern_kernels::select(step.problem, in, out, kernels);
  return {{}, std::move(s.kernel), std::move(s.chosen), std::move(s.refusals)};
}

} // namespace

extern_kernels::OperandInfo operand_facts(const Executable& executable, const OperandView& view) {
  extern_kernels::OperandInfo info;
  if (view.buffer < 0) return info;
  info.dtype = executable.buffers[view.buffer].dtype;
  for (const SizeExpr& size : view.sizes) info.sizes.push_back(size.is_constant() ? size.items[0].value : -1);
  if (std::all_of(view.strides.begin(), view.strides.end(),
                  [](const SizeExpr& s) { return s.is_constant(); }))
    for (const SizeExpr& stride : view.strides) info.strides.push_back(stride.items[0].value);
  info.constant = constant_of(executable, view);
  return info;
}

std::shared_ptr<const BoundExecutable> bind(std::shared_ptr<const Executable> executable,
                                            std::vector<std::shared_ptr<const Module>> modules,
                                            extern_kernels::Kernels kernels, const DeviceModule& on) {
  auto bound = std::make_shared<BoundExecutable>();
  bound->on_device = bind_device(*executable, on);
  // What a run reads without writing it: kernels get all buffers as void*.
  for (const auto& constant : executable->constants)
    bound->constants.push_back(const_cast<std::byte*>(constant->data));
  for (const Step& step : executable->steps) {
    try {
      const bool host = step.device == DeviceKind::cpu;
      if (const auto* kernel = std::get_if<KernelStep>(&step.what)) {
        bound->steps.push_back({host ? kernel_of(modules, kernel->name) : Kernel{}, nullptr, {}, {}});
      } else if (const auto* call = std::get_if<ExternStep>(&step.what)) {
        bound->steps.push_back(bind_extern(*executable, *call, kernels, host ? nullptr : on.device.get()));
        bound->data_dependent |= !call->dynamic_outputs.empty();
      } else {
        bound->steps.emplace_back();
      }
    } catch (Error& e) {
      e.set_where(nodes_of(*executable, step.origins));
      throw;
    }
  }
  bound->executable = std::move(executable);
  bound->modules = std::move(modules);
  return bound;
}

} // namespace tbx::runtime
