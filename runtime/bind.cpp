#include "runtime/bind.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/side_by_side.h"
#include "base/spare_memory.h"
#include "extern_kernels/cuda/select.h"
#include "extern_kernels/fit.h"
#include "extern_kernels/library_kernel.h"
#include "extern_kernels/threads.h"
#include "runtime/rehearsal.h"
#include "runtime/session.h"

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

/// What is known of outputs whose sizes a run decides.
std::vector<extern_kernels::OperandInfo> made_facts(const Executable& executable, const ExternStep& step) {
  std::vector<extern_kernels::OperandInfo> made(step.dynamic_outputs.size());
  for (size_t i = 0; i < made.size(); ++i) {
    made[i].dtype = executable.buffers[step.dynamic_outputs[i]].dtype;
    made[i].sizes.assign(step.dynamic_dims[i].size(), -1);
  }
  return made;
}

/// Who reads the elements of each constant in a run.
class ConstantReaders {
public:
  explicit ConstantReaders(const Executable& executable) : executable_(executable) {
    readers_.resize(executable.constants.size());
    auto add = [&](int buffer) {
      if (buffer >= 0 && executable.buffers[buffer].storage == StorageKind::constant)
        ++readers_[executable.buffers[buffer].index];
    };
    for (const Step& step : executable.steps) for_each_buffer(step, [&](int b, bool) { add(b); });
    for (const SignatureEntry& out : executable.outputs) add(out.buffer);
  }

  /// The kernel of this step is there: `unread` is told which constants nobody is left to read.
  template <class Unread>
  void leave(const ExternStep& call, const extern_kernels::ExternKernel& kernel, const Unread& unread) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.inputs[i].buffer < 0 || kernel.reads(i) || !constant_of(executable_, call.inputs[i])) continue;
      const auto constant = static_cast<size_t>(executable_.buffers[call.inputs[i].buffer].index);
      if (--readers_[constant] == 0) unread(constant);
    }
  }

private:
  const Executable& executable_;
  std::vector<int> readers_; ///< by constant
};

/// On a device, where there is one.
BoundStep bind_extern(const Executable& executable, const ExternStep& step, const BindOptions& options,
                      device::Device* device) {
  auto facts = [&](const std::vector<OperandView>& views) {
    std::vector<extern_kernels::OperandInfo> all;
    all.reserve(views.size());
    for (const OperandView& v : views) all.push_back(operand_facts(executable, v));
    return all;
  };
  const auto in = facts(step.inputs), out = facts(step.outputs);
  const bool allocates = !step.dynamic_outputs.empty();
  extern_kernels::check_fit(step.problem, in, allocates ? made_facts(executable, step) : out, allocates);
  const bool keeps_state = std::any_of(executable.inputs.begin(), executable.inputs.end(),
                                       [](const SignatureEntry& e) { return e.state_axis >= 0; });
  const bool grows = keeps_state && step.inputs.size() > 1 && !step.inputs[1].sizes.empty() &&
                     std::any_of(step.inputs[1].sizes.begin(), step.inputs[1].sizes.end(),
                                 [](const SizeExpr& e) { return !e.is_constant(); });
  using extern_kernels::Lengths;
  extern_kernels::Selection s =
      device ? extern_kernels::select_on(*device, step.problem, in, out, grows ? Lengths::grow : Lengths::any)
             : extern_kernels::select(step.problem, in, out, options.kernels);
  return {{}, std::move(s.kernel), std::move(s.chosen), std::move(s.refusals)};
}

/// What is known of the operands of a call.
EarlyCall early_call(const Executable& executable, const ExternStep& step) {
  EarlyCall call;
  call.inputs = step.inputs.size();
  for (const auto* views : {&step.inputs, &step.outputs})
    for (const OperandView& v : *views) {
      call.operands.push_back(operand_facts(executable, v));
      call.operands.back().constant = nullptr;
      const bool known = v.buffer >= 0 && v.offset.is_constant();
      call.offsets.push_back(
          known ? static_cast<size_t>(v.offset.items[0].value * size_of(call.operands.back().dtype)) : 0);
    }
  return call;
}

/// All that decides which texts, plans and measurements a call needs.
std::string form_of(const ExternStep& step, const EarlyCall& call) {
  std::string form = extern_kernels::to_string(step.problem);
  for (const extern_kernels::OperandInfo& o : call.operands)
    form += fmt::format("; {} {} {}", name_of(o.dtype), fmt::join(o.sizes, " "), fmt::join(o.strides, " "));
  return form;
}

/// What the first run of the sizes would compile, look for and measure, where they are known. Only one call
/// of a form is measured: the others take what it finds.
void prepare(EarlyCall call, EarlyMeasurements* measurements) {
  std::vector<extern_kernels::TensorRef> refs;
  for (const extern_kernels::OperandInfo& o : call.operands) {
    if (o.strides.size() != o.sizes.size() ||
        std::any_of(o.sizes.begin(), o.sizes.end(), [](int64_t s) { return s < 0; }))
      return;
    refs.push_back({nullptr, o.dtype, o.sizes, o.strides});
  }
  const std::span<const extern_kernels::TensorRef> all(refs);
  call.kernel->workspace_bytes(all.first(call.inputs), all.subspan(call.inputs));
  if (call.kernel->can_rehearse()) rehearse_early(call);
  const auto* library = dynamic_cast<const extern_kernels::LibraryKernel*>(call.kernel);
  if (measurements && library && library->measures()) measurements->add(std::move(call));
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
  // Who packs a constant must know all of it; of one that has sizes of a run, memory is read in every run.
  const bool known = std::all_of(info.sizes.begin(), info.sizes.end(), [](int64_t n) { return n >= 0; });
  if (known) info.constant = constant_of(executable, view);
  return info;
}

// Side by side: each may have texts compiled, and wait for that. The first of each form come first, so that
// no text waits behind threads that all wait for one other.
std::vector<BoundStep> bind_on_device(const Executable& executable, const BindOptions& options) {
  struct Call {
    size_t step;
    EarlyCall early;
    bool first; ///< of its form
  };
  std::vector<Call> calls;
  std::set<std::string> forms;
  for (size_t s = 0; s < executable.steps.size(); ++s) {
    const auto* step = std::get_if<ExternStep>(&executable.steps[s].what);
    if (executable.steps[s].device == DeviceKind::cpu || !step) continue;
    EarlyCall early = early_call(executable, *step);
    const bool first = forms.insert(form_of(*step, early)).second;
    calls.push_back({s, std::move(early), first});
  }
  std::vector<BoundStep> bound(executable.steps.size());
  if (calls.empty()) return bound;
  std::stable_partition(calls.begin(), calls.end(), [](const Call& call) { return call.first; });
  constexpr int64_t kMost = int64_t{256} << 20; // what is measured
  EarlyMeasurements measurements(
      *options.on.device,
      static_cast<size_t>(options.max_memory > 0 ? std::min(options.max_memory, kMost) : kMost));
  const std::vector<std::exception_ptr> failed = side_by_side(calls.size(), [&](size_t i) {
    Call& call = calls[i];
    const auto& step = std::get<ExternStep>(executable.steps[call.step].what);
    bound[call.step] = bind_extern(executable, step, options, options.on.device.get());
    call.early.kernel = bound[call.step].library.get();
    prepare(std::move(call.early), call.first ? &measurements : nullptr);
  });
  for (size_t i = 0; i < calls.size(); ++i) try {
      if (failed[i]) std::rethrow_exception(failed[i]);
    } catch (Error& e) {
      e.set_where(nodes_of(executable, executable.steps[calls[i].step].origins));
      throw;
    }
  return bound;
}

void give_up(Executable& executable, size_t constant) {
  Tensor known;
  known.dtype = executable.constants[constant]->dtype;
  known.dims = executable.constants[constant]->dims;
  executable.constants[constant] = std::make_shared<const Tensor>(std::move(known));
}

std::shared_ptr<const BoundExecutable> bind(std::shared_ptr<const Executable> executable,
                                            std::vector<std::shared_ptr<const Module>> modules,
                                            const BindOptions& given) {
  BindOptions options = given;
  if (options.threads <= 0) options.threads = default_threads();
  const BoundExecutable* twin = options.twin;
  TBX_INTERNAL(!twin || twin->steps.size() == executable->steps.size());
  auto bound = std::make_shared<BoundExecutable>();
  bound->on_device = bind_device(*executable, options.on);
  // What a run reads without writing it: kernels get all buffers as void*.
  for (const auto& constant : executable->constants)
    bound->constants.push_back(const_cast<std::byte*>(constant->data));
  std::vector<BoundStep> made;
  if (bound->on_device && !twin)
    made = options.libraries ? options.libraries() : bind_on_device(*executable, options);
  require_spare_memory(); // for what libraries make of a question
  ConstantReaders readers(*executable);
  auto bind_call = [&](const ExternStep& call, size_t at, bool host) {
    bound->data_dependent |= !call.dynamic_outputs.empty();
    BoundStep step = twin   ? twin->steps[at]
                     : host ? bind_extern(*executable, call, options, nullptr)
                            : std::move(made[at]);
    if (host && options.unread)
      readers.leave(call, *step.library, [&](size_t constant) {
        bound->constants[constant] = nullptr;
        options.unread(constant);
      });
    return step;
  };
  auto bind_step = [&](const Step& step, size_t at) {
    const bool host = step.device == DeviceKind::cpu;
    if (const auto* kernel = std::get_if<KernelStep>(&step.what))
      return BoundStep{host ? kernel_of(modules, kernel->name) : Kernel{}, nullptr, {}, {}};
    const auto* call = std::get_if<ExternStep>(&step.what);
    return call ? bind_call(*call, at, host) : BoundStep{};
  };
  extern_kernels::as_with_threads(options.threads, [&] {
    for (const Step& step : executable->steps) try {
        bound->steps.push_back(bind_step(step, bound->steps.size()));
      } catch (Error& e) {
        e.set_where(nodes_of(*executable, step.origins));
        throw;
      }
  });
  bound->executable = std::move(executable);
  bound->modules = std::move(modules);
  return bound;
}

} // namespace tbx::runtime
