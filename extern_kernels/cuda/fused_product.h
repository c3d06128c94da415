// Products of halves behind which stands what cuBLASLt does not do, exact GELU: by a kernel of ours on tensor cores
// where rows are few, else by the library and a pass behind it. Which of them is faster is measured.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

std::string supports_cuda_fused_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                        std::span<const OperandInfo> outputs);

/// Ways to compute one: 0 is the library and a pass behind it, the others are tiles of different sizes.
inline constexpr size_t kFusedWays = 6;

/// The text with all tiles. `b_columns`: the columns of b are dense, not its rows.
std::string fused_product_text(DType half, bool b_columns);

/// `load` makes a module of the text; empty: by NVRTC. `way`: taken without a measurement, where the operands
/// allow it.
std::unique_ptr<ExternKernel>
make_fused_product(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                   std::span<const OperandInfo> outputs,
                   std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {},
                   std::optional<size_t> way = {});

} // namespace tbx::extern_kernels
