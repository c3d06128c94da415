#include "extern_kernels/cuda/fake_kernel.h"

#include <fmt/format.h>

#include <bit>

#include "base/error.h"
#include "base/strides.h"
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

/// The nearest number of 11 significant bits, as tensor cores take float32.
float to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  constexpr uint32_t kExponent = 0x7f800000, kDropped = 0x1fff;
  return (bits & kExponent) == kExponent ? x : std::bit_cast<float>((bits + (kDropped + 1) / 2) & ~kDropped);
}

/// A dense copy of an operand in TF32.
class Rounded {
public:
  explicit Rounded(const TensorRef& t)
      : sizes_(t.sizes.begin(), t.sizes.end()), strides_(row_major_strides(t.sizes)),
        values_(static_cast<size_t>(t.numel())) {
    for (size_t i = 0; i < values_.size(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < sizes_.size(); ++d)
        at += static_cast<int64_t>(i) / strides_[d] % sizes_[d] * t.strides[d];
      values_[i] = to_tf32(static_cast<const float*>(t.data)[at]);
    }
  }
  TensorRef ref() { return {values_.data(), DType::f32, sizes_, strides_}; }

private:
  std::vector<int64_t> sizes_, strides_;
  std::vector<float> values_;
};

void run_in_tf32(const ExternKernel& kernel, std::vector<TensorRef> inputs,
                 const std::vector<TensorRef>& outputs, void* workspace) {
  Rounded a(inputs[0]), b(inputs[1]);
  inputs[0] = a.ref(), inputs[1] = b.ref();
  kernel.run({inputs, outputs, nullptr, workspace});
}

/// `Base`: what the candidate is.
template <class Base> class FakeKernel final : public Base {
public:
  FakeKernel(Impersonated candidate, Selection stand_in)
      : candidate_(std::move(candidate)), kernel_(std::move(stand_in.kernel)) {}

  std::string description() const override {
    return fmt::format("{} (on the fake device: {})", candidate_.name, kernel_->description());
  }
  int64_t workspace_bytes(std::span<const TensorRef> inputs,
                          std::span<const TensorRef> outputs) const override {
    return kernel_->workspace_bytes(inputs, outputs);
  }
  void run(const RunArgs& args) const override {
    TBX_INTERNAL(args.stream != nullptr);
    const bool tf32 = candidate_.tf32;
    device::run_on_host(*args.stream, [kernel = kernel_, inputs = Operands(args.inputs), tf32,
                                       outputs = Operands(args.outputs), workspace = args.workspace] {
      const std::vector<TensorRef> in = inputs.refs(), out = outputs.refs();
      if (tf32) return run_in_tf32(*kernel, in, out, workspace);
      kernel->run({in, out, nullptr, workspace});
    });
  }

private:
  Impersonated candidate_;
  std::shared_ptr<const ExternKernel> kernel_; ///< shared with work that is queued
};

} // namespace

std::unique_ptr<ExternKernel> make_fake_kernel(const Impersonated& candidate, const Problem& problem,
                                               std::span<const OperandInfo> inputs,
                                               std::span<const OperandInfo> outputs) {
  Selection stand_in = select(problem, inputs, outputs, Kernels::plain);
  if (candidate.launched) return std::make_unique<FakeKernel<LaunchedKernel>>(candidate, std::move(stand_in));
  return std::make_unique<FakeKernel<ExternKernel>>(candidate, std::move(stand_in));
}

} // namespace tbx::extern_kernels
