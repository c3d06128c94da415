#include "extern_kernels/cuda/fake_kernel.h"

#include <fmt/format.h>

#include "base/error.h"
#include "device/fake/fake_device.h"
#include "extern_kernels/launched_kernel.h"

namespace tbx::extern_kernels {
namespace {

/// Operands that outlive the call of run(): what the stream does later must not look at the caller's sizes.
class Operands {
public:
  explicit Operands(std::span<const TensorRef> refs) {
    for (const TensorRef& r : refs)
      tensors_.push_back({r, {r.sizes.begin(), r.sizes.end()}, {r.strides.begin(), r.strides.end()}});
  }
  std::vector<TensorRef> refs() const {
    std::vector<TensorRef> out;
    for (const Owned& t : tensors_) out.push_back({t.ref.data, t.ref.dtype, t.sizes, t.strides});
    return out;
  }

private:
  struct Owned {
    TensorRef ref;
    std::vector<int64_t> sizes, strides;
  };
  std::vector<Owned> tensors_;
};

/// `Base`: what the candidate is.
template <class Base> class FakeKernel final : public Base {
public:
  FakeKernel(const std::string& candidate, Selection stand_in)
      : candidate_(candidate), kernel_(std::move(stand_in.kernel)) {}

  std::string description() const override {
    return fmt::format("{} (on the fake device: {})", candidate_, kernel_->description());
  }
  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    return kernel_->workspace_bytes(inputs, outputs);
  }
  void run(const RunArgs& args) const override {
    TBX_INTERNAL(args.stream != nullptr);
    device::run_on_host(*args.stream, [kernel = kernel_, inputs = Operands(args.inputs),
                                       outputs = Operands(args.outputs), workspace = args.workspace] {
      const std::vector<TensorRef> in = inputs.refs(), out = outputs.refs();
      kernel->run({in, out, nullptr, workspace});
    });
  }

private:
  std::string candidate_;
  std::shared_ptr<const ExternKernel> kernel_; ///< shared with work that is queued
};

} // namespace

std::unique_ptr<ExternKernel> make_fake_kernel(const std::string& candidate, bool launched,
                                               const Problem& problem, std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs) {
  Selection stand_in = select(problem, inputs, outputs, Kernels::plain);
  if (launched) return std::make_unique<FakeKernel<LaunchedKernel>>(candidate, std::move(stand_in));
  return std::make_unique<FakeKernel<ExternKernel>>(candidate, std::move(stand_in));
}

} // namespace tbx::extern_kernels
