// Attention of few queries by a kernel of ours, in float32 whatever the types of its operands: steps of
// decoders.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Empty when the kernel can be made of the operands.
std::string refuses_row_attention(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs);
/// The kernel is the right one for as many queries of as many heads: others share what they read better.
bool suits_row_attention(int64_t heads, int64_t kv_heads, int64_t queries);

/// `load` makes a module of the text; empty: by NVRTC.
std::unique_ptr<ExternKernel>
make_row_attention(device::Device& device, const AttentionProblem& problem,
                   std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs,
                   std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {});

} // namespace tbx::extern_kernels
