// LSTM, GRU and RNN on a GPU by a kernel of ours: all steps in one kernel, whose weights stay in registers
// and shared memory. From sm_90 on a cluster of blocks shares the hidden units and tells each other the
// states; on older GPUs one block has all of them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Everything that ONNX defines, in f32 and f64 with states and results of any float type. Lengths of
/// sequences that are no constants belong to the host, which says which of them is wrong.
std::string supports_cuda_recurrent(const Problem& problem, std::span<const OperandInfo> inputs,
                                    std::span<const OperandInfo> outputs, const device::Properties&);

/// `value`: type of the states and results. `load` makes a module of the text; empty: by NVRTC.
std::unique_ptr<ExternKernel>
make_recurrent_layer(device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
                     DType value,
                     std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {});

} // namespace tbx::extern_kernels
