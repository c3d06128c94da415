// Attention in float16 and bfloat16 by a kernel of ours that uses tensor cores.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "device/device.h"
#include "extern_kernels/cuda/loops.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

/// Empty when the kernel can be made of the operands. Keys and values may be float32: they are rounded when
/// they are read.
std::string refuses_tensor_attention(std::span<const OperandInfo> inputs,
                                     std::span<const OperandInfo> outputs);
/// The GPU has the instructions.
bool has_tensor_cores(const device::Properties& properties);

/// `load` makes a module of the text; empty: by NVRTC.
std::unique_ptr<ExternKernel>
make_tensor_attention(device::Device& device, const AttentionProblem& problem,
                      std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs,
                      std::function<std::shared_ptr<device::Module>(const std::string& text)> load = {});

namespace cuda {

/// What of the kernel's text depends on the operands.
struct HeadsForm {
  DType half = DType::f16;       ///< of the queries
  DType kv = DType::f16;         ///< of keys and values: the same or float32
  DType mask = DType::undefined; ///< undefined: none
  DType out = DType::f16;
  int64_t depth = 0, width = 0; ///< of a head of keys and of values
  bool softcap = false;         ///< scores are bounded
  bool vector = false;          ///< all rows begin at multiples of 16 bytes
  bool causal = false;          ///< of plain heads
  int shares = 0;               ///< warps that share the keys of plain heads; 0: heads in all their forms
  bool overlap = false;         ///< plain heads: they may begin before the kernel before them ends
  int64_t keys() const;         ///< that a warp looks at together
  int64_t numbers() const;      ///< float32 values that a thread has of its rows
  std::string text() const;
};

/// How the work is spread: fields of `a` behind `rows`. `multiprocessors`: of the GPU.
void spread_heads(HeadsArguments& a, const HeadsForm& form, int64_t batch, int multiprocessors);

} // namespace cuda
} // namespace tbx::extern_kernels
