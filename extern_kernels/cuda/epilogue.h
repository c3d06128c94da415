// What a library does behind its sums: a bias, one addition, one activation.
#pragma once

#include <span>
#include <string>

#include "extern_kernels/cuda/gemm.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

/// Numbers of inputs; -1: none.
struct Epilogue {
  int bias = -1;         ///< one value for each channel or column
  int residual = -1;     ///< of the result's sizes
  bool in_place = false; ///< the residual is what lies in the result's memory
  Activation activation = Activation::none;
  std::string refusal; ///< why this is none; empty: it is one
};

/// `axis`: the result's dimension of channels or columns. `bias`: input of the problem's own bias, -1: none;
/// it is [channels], or broadcasts to the result. Sizes of -1 are known at run time only.
Epilogue epilogue_of(const std::vector<PostOp>& ops, int bias, std::span<const OperandInfo> inputs,
                     const OperandInfo& result, int axis);

} // namespace tbx::extern_kernels::cuda
