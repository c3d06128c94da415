// Products with matrices of packed 4-bit integers (MatMulNBits) by a kernel of ours, for few rows: steps of
// decoders, which read the integers once.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

std::string supports_cuda_packed_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                         std::span<const OperandInfo> outputs, const device::Properties&);

/// `load` makes a module of the text; empty: by NVRTC.
std::unique_ptr<ExternKernel>
make_packed_product(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                    std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {});

} // namespace tbx::extern_kernels
