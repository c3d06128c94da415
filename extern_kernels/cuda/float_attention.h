// Attention in float32 by a kernel of ours, in tiles of queries and keys: neither libraries nor tensor cores
// multiply float32 as it is.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Empty when the kernel can be made of the operands and the device has memory for its tiles.
std::string refuses_float_attention(const device::Properties& properties, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs);

/// `load` makes a module of the text; empty: by NVRTC.
std::unique_ptr<ExternKernel>
make_float_attention(device::Device& device, const AttentionProblem& problem,
                     std::span<const OperandInfo> inputs,
                     std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {});

} // namespace tbx::extern_kernels
