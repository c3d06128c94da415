// Constant weights of a convolution on a GPU, channels innermost: the order that cuDNN's kernels read.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

/// Pixels one behind another, the channels (dimension 1) of each side by side; weights likewise.
bool is_rows(std::span<const int64_t> sizes, std::span<const int64_t> strides);

/// Elements of [outputs, inputs, ...] weights with the inputs innermost. By all threads: the weights of a
/// model are ordered at its first run.
std::vector<char> with_channels_last(const OperandInfo& weights);

class ConvWeights {
public:
  /// Nothing is held where the weights are not constant, or lie like that already.
  ConvWeights(device::Device& device, const OperandInfo& weights);
  /// The weights in that order, uploaded by the first call; nullptr where there are none here. `strides` are
  /// theirs.
  const void* channels_last(std::vector<int64_t>& strides) const;
  int64_t bytes() const;

private:
  device::Device& device_;
  OperandInfo weights_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<device::Memory> memory_;
};

} // namespace tbx::extern_kernels::cuda
