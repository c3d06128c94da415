// The plain kernels of GPUs, for kernels of libraries whose library refuses what it is asked at run time.
#pragma once

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

std::unique_ptr<ExternKernel> make_cuda_matmul(device::Device&, const Problem&, std::span<const OperandInfo>,
                                               std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_cuda_conv(device::Device&, const Problem&, std::span<const OperandInfo>,
                                             std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_cuda_attention(device::Device&, const Problem&, std::span<const OperandInfo>,
                                                  std::span<const OperandInfo>);

} // namespace tbx::extern_kernels
