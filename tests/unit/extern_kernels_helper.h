// Operands of any strides, and the plain loops that library kernels are compared with.
#pragma once

#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

std::unique_ptr<ExternKernel> make_reference_conv(const Problem&, std::span<const OperandInfo>,
                                                  std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_reference_matmul(const Problem&, std::span<const OperandInfo>,
                                                    std::span<const OperandInfo>);

using Dims = std::vector<int64_t>;

/// Strides of a tensor that is dense over the dimensions in `order`, outermost first; empty: in their own
/// order.
inline Dims dense_strides(const Dims& sizes, std::vector<int> order) {
  if (order.empty()) {
    order.resize(sizes.size());
    std::iota(order.begin(), order.end(), 0);
  }
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  return strides;
}

inline std::vector<int> channels_last(size_t rank) {
  std::vector<int> order{0};
  for (size_t k = 2; k < rank; ++k) order.push_back(static_cast<int>(k));
  order.push_back(1);
  return order;
}

/// A tensor in memory of its own, which ends with its last element, dense over the dimensions in `order`.
struct OwnedOperand {
  DType dtype = DType::undefined;
  Dims sizes, strides;
  std::shared_ptr<Tensor> tensor; ///< null: there is none

  OwnedOperand() = default;
  OwnedOperand(DType type, Dims s, std::vector<int> order)
      : dtype(type), sizes(std::move(s)), strides(dense_strides(sizes, std::move(order))),
        tensor(std::make_shared<Tensor>(Tensor::make(type, sizes))) {}
  TensorRef ref() const {
    return tensor ? TensorRef{tensor->mutable_data(), dtype, sizes, strides} : TensorRef{};
  }
  OperandInfo info(bool constant = false) const {
    return {dtype, sizes, strides, constant ? tensor : nullptr};
  }
};

/// Runs the kernel with a workspace of its own.
inline void run(const ExternKernel& kernel, std::span<const TensorRef> inputs,
                std::span<const TensorRef> outputs) {
  std::vector<char> memory(static_cast<size_t>(kernel.workspace_bytes(inputs, outputs)) + 64);
  void* workspace = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  kernel.run({inputs, outputs, nullptr, workspace});
}

} // namespace tbx::extern_kernels
