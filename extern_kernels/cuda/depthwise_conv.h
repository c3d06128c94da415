// Depthwise convolutions on a GPU by kernels of ours: where channels are innermost a block has what the
// windows of its tile cover in shared memory, else a thread reads what those of a strip of results cover
// once.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// One kernel for each channel, along one or two dimensions, in float32, float16 and bfloat16, with all
/// post-operations.
std::string supports_cuda_depthwise_conv(const Problem& problem, std::span<const OperandInfo> inputs,
                                         std::span<const OperandInfo> outputs, const device::Properties&);

/// `load` makes a module of the text; empty: by NVRTC.
std::unique_ptr<ExternKernel>
make_depthwise_conv(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                    std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {});

} // namespace tbx::extern_kernels
