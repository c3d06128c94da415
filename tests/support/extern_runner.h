// Runs the extern calls of a reference run with the kernels that would be chosen for them.
#pragma once

#include <array>

#include "extern_kernels/kernel.h"
#include "lowering/reference_run.h"

namespace tbx::test {

class Made final : public extern_kernels::OutputAllocator {
public:
  void* allocate(int index, DType dtype, std::span<const int64_t> sizes) override {
    if (tensors.size() <= static_cast<size_t>(index)) tensors.resize(index + 1);
    tensors[index] = Tensor::make(dtype, {sizes.begin(), sizes.end()});
    return tensors[index].mutable_data();
  }
  std::vector<Tensor> tensors;
};

inline std::vector<Tensor> run_extern(const ir::ExternCall& call,
                                      std::span<const lowering::ExternArgument> inputs,
                                      std::span<const lowering::ExternArgument> outputs) {
  auto refs = [](std::span<const lowering::ExternArgument> arguments) {
    std::vector<extern_kernels::TensorRef> out;
    for (const lowering::ExternArgument& a : arguments) out.push_back({a.data, a.dtype, a.sizes, a.strides});
    return out;
  };
  auto infos = [](std::span<const lowering::ExternArgument> arguments) {
    std::vector<extern_kernels::OperandInfo> out;
    for (const lowering::ExternArgument& a : arguments) out.push_back({a.dtype, a.sizes, a.strides, nullptr});
    return out;
  };
  auto ins = refs(inputs), outs = refs(outputs);
  auto selection = extern_kernels::select(call.problem, infos(inputs), infos(outputs));
  std::vector<std::byte> workspace(selection.kernel->workspace_bytes(ins, outs) + 64);
  Made made;
  void* aligned = workspace.data() + (64 - reinterpret_cast<uintptr_t>(workspace.data()) % 64) % 64;
  selection.kernel->run({ins, outs, &made, aligned});
  return std::move(made.tensors);
}

} // namespace tbx::test
