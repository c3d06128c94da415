// Operators without a loop-nest form call a host kernel of their name (extern_kernels/host/), or a kernel for
// a problem of their own.
#pragma once

#include <optional>

#include "extern_kernels/attributes.h"
#include "lowering/op_helpers.h"

namespace tbx::lowering {

struct HostOutput {
  DType dtype;
  SymInts sizes; ///< data-dependent dimensions are unbacked symbols
};

/// The attributes of a node as in the file, but for bodies, types and lists of tensors, which no host
/// operator takes.
extern_kernels::Attributes host_attributes(const Node& node);

/// Emits the call over the first `num_inputs` inputs (-1: all) and gives its outputs.
std::vector<LoweredValue> host_call(OpContext& ctx, const std::vector<HostOutput>& outputs,
                                    extern_kernels::Attributes attributes, int num_inputs = -1);
/// Same over these operands; nullopt: absent.
std::vector<LoweredValue> host_call(OpContext& ctx, const std::vector<std::optional<TensorBox>>& inputs,
                                    const std::vector<HostOutput>& outputs,
                                    extern_kernels::Attributes attributes,
                                    std::shared_ptr<const extern_kernels::CustomCall> custom = nullptr);

/// Emits a call with a problem of its own over these operands and gives its outputs, of known sizes.
std::vector<LoweredValue> typed_call(OpContext& ctx, const std::vector<std::optional<TensorBox>>& inputs,
                                     const std::vector<HostOutput>& outputs, extern_kernels::Problem problem);

/// Sizes that are computed while running: one fresh symbol per element of `values` (i64, 1-D, of known
/// length). A negative element is a model error that speaks of `what`.
SymInts sizes_at_run_time(OpContext& ctx, const TensorBox& values, const std::string& what);

} // namespace tbx::lowering
