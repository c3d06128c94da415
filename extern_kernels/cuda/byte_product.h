// Products and convolutions of 8-bit integers by a kernel of ours on tensor cores.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Channels of a group of a convolution: with fewer tensor cores would multiply mostly zeros.
constexpr int64_t kFewestChannels = 8;

std::string supports_cuda_byte_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                       std::span<const OperandInfo> outputs, const device::Properties&);

/// `load` makes a module of the text; empty: by NVRTC. `multiprocessors`: work is spread over so many; 0: as
/// many as the device has.
std::unique_ptr<ExternKernel>
make_byte_product(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                  std::span<const OperandInfo> outputs,
                  std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {},
                  int multiprocessors = 0);

} // namespace tbx::extern_kernels
