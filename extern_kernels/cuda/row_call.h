// Products of one row with a norm before them or a gate behind them, by a kernel of ours.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "extern_kernels/cuda/row_product.h"

namespace tbx::extern_kernels {

std::string supports_cuda_row_product(const Problem& problem, std::span<const OperandInfo> inputs,
                                      std::span<const OperandInfo> outputs, const device::Properties&);

/// `load` makes a module of the text; empty: by NVRTC.
std::unique_ptr<ExternKernel> make_row_call(device::Device& device, const Problem& problem,
                                            std::span<const OperandInfo> inputs,
                                            std::span<const OperandInfo> outputs,
                                            cuda::RowProduct::Load load = {});

} // namespace tbx::extern_kernels
