#include "lowering/extern_run.h"

#include "base/error.h"
#include "extern_kernels/catalogue.h"
#include "extern_kernels/kernel.h"

namespace tbx::lowering {
namespace {

class Made final : public extern_kernels::OutputAllocator {
public:
  void* allocate(int index, DType dtype, std::span<const int64_t> sizes) override {
    if (tensors.size() <= static_cast<size_t>(index)) tensors.resize(index + 1);
    tensors[index] = Tensor::make(dtype, {sizes.begin(), sizes.end()});
    return tensors[index].mutable_data();
  }
  std::vector<Tensor> tensors;
};

} // namespace

std::vector<Tensor> run_extern(const ir::ExternCall& call, std::span<const ExternArgument> inputs,
                               std::span<const ExternArgument> outputs) {
  auto refs = [](std::span<const ExternArgument> arguments) {
    std::vector<extern_kernels::TensorRef> out;
    for (const ExternArgument& a : arguments) out.push_back({a.data, a.dtype, a.sizes, a.strides});
    return out;
  };
  auto infos = [](std::span<const ExternArgument> arguments) {
    std::vector<extern_kernels::OperandInfo> out;
    for (const ExternArgument& a : arguments) out.push_back({a.dtype, a.sizes, a.strides, nullptr});
    return out;
  };
  auto ins = refs(inputs), outs = refs(outputs);
  auto selection = extern_kernels::select(call.problem, infos(inputs), infos(outputs));
  std::vector<std::byte> workspace(selection.kernel->workspace_bytes(ins, outs) + 64);
  void* aligned = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
  Made made;
  selection.kernel->run({ins, outs, &made, aligned});
  return std::move(made.tensors);
}

std::vector<Tensor> run_host(const ir::ExternCall& call, std::span<const ExternArgument> inputs,
                             std::span<const ExternArgument> outputs) {
  if (extern_kernels::is_for_libraries(call.problem))
    throw_unsupported("a library's kernel in a reference run");
  return run_extern(call, inputs, outputs);
}

} // namespace tbx::lowering
