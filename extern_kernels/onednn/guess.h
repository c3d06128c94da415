// Operands of a problem as the library will see them, for questions that come before their sizes are known.
#pragma once

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::onednn {

/// Tensors without data. Sizes that are not known are middling ones that fit together, strides that are not
/// known those of the layout that the kernels wish for.
struct Guess {
  std::vector<TensorRef> inputs, outputs;
  /// Nothing is computed, the sizes do not fit together, or elements cannot be counted: there are no
  /// operands.
  bool is_empty = false;

  Guess(const ConvProblem& p, std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs);
  Guess(const MatMulProblem& p, std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs);
  Guess(const Guess&) = delete;

private:
  void add(std::span<const OperandInfo> infos, std::vector<std::vector<int64_t>> sizes, bool channels_last,
           std::vector<TensorRef>& to);
  std::vector<std::vector<int64_t>> numbers_; ///< what the tensors refer to
};

} // namespace tbx::extern_kernels::onednn
