// Plain loops on GPUs: what libraries refuse.
#include "base/error.h"
#include "extern_kernels/cuda/select.h"

namespace tbx::extern_kernels {

#define TBX_PLAIN_KERNEL(name)                                                                               \
  std::string supports_reference_##name(const Problem&, std::span<const OperandInfo>,                        \
                                        std::span<const OperandInfo>);                                       \
  std::string supports_cuda_##name(const Problem& problem, std::span<const OperandInfo> inputs,              \
                                   std::span<const OperandInfo> outputs) {                                   \
    return supports_reference_##name(problem, inputs, outputs);                                              \
  }                                                                                                          \
  std::unique_ptr<ExternKernel> make_cuda_##name(device::Device&, const Problem& problem,                    \
                                                 std::span<const OperandInfo>, std::span<const OperandInfo>) { \
    throw_unsupported("no kernel of GPUs computes {} yet", to_string(problem));                              \
  }
TBX_PLAIN_KERNEL(conv)
TBX_PLAIN_KERNEL(matmul)
TBX_PLAIN_KERNEL(attention)
#undef TBX_PLAIN_KERNEL

} // namespace tbx::extern_kernels
