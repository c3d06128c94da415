// A product with packed weights and all that is done with its sums: what convolutions and matrix products
// have in common.
#pragma once

#include "extern_kernels/product/run.h"

namespace tbx::extern_kernels::product {

class Call {
public:
  /// Inputs of a run: 0 = rows, 1 = the sizes of the matrices, 2 = bias, 3.. = operands of `post_ops`.
  Call(const OperandInfo& matrix, float alpha, bool has_bias, std::span<const PostOp> post_ops);

  std::string description(const Problem& problem) const;
  int64_t packed_bytes() const { return weights_.bytes(); }
  /// So many results of so many factors each take as long as waking a thread.
  static bool is_serial(int64_t results, int64_t depth);
  void run(const RunArgs& args) const;

private:
  Weights weights_;
  Work work_;
};

/// Why there can be no blocked product of them; 1 is the matrix.
std::string operands_refusal(std::span<const OperandInfo> inputs, const OperandInfo& result);
/// Why not: operands, of which 1 is the matrix, and the result, which has one dimension of columns. Empty:
/// blocked products are fastest on this CPU.
std::string refusal(std::span<const OperandInfo> inputs, const OperandInfo& result, size_t columns,
                    const Target& target);

} // namespace tbx::extern_kernels::product
