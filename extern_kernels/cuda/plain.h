// The plain kernels of GPUs, for kernels of libraries whose library refuses what it is asked at run time.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels {

std::unique_ptr<ExternKernel> make_cuda_matmul(device::Device&, const Problem&, std::span<const OperandInfo>,
                                               std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_cuda_conv(device::Device&, const Problem&, std::span<const OperandInfo>,
                                             std::span<const OperandInfo>);
std::unique_ptr<ExternKernel> make_cuda_attention(device::Device&, const Problem&,
                                                  std::span<const OperandInfo>, std::span<const OperandInfo>);

/// A plain kernel that is made when it is needed: its text is compiled then. The device must outlive it.
class LazyKernel {
public:
  using Make = std::unique_ptr<ExternKernel> (*)(device::Device&, const Problem&,
                                                 std::span<const OperandInfo>, std::span<const OperandInfo>);
  LazyKernel(Make make, device::Device& device, const Problem& problem, std::span<const OperandInfo> inputs,
             std::span<const OperandInfo> outputs)
      : make_(make), device_(device), problem_(problem), inputs_(inputs.begin(), inputs.end()),
        outputs_(outputs.begin(), outputs.end()) {
    for (OperandInfo& i : inputs_) i.constant = nullptr; // held by others
  }
  const ExternKernel& get() const {
    std::call_once(once_, [&] { kernel_ = make_(device_, problem_, inputs_, outputs_); });
    return *kernel_;
  }
  const std::vector<OperandInfo>& inputs() const { return inputs_; }
  device::Device& device() const { return device_; }

private:
  Make make_;
  device::Device& device_;
  Problem problem_;
  std::vector<OperandInfo> inputs_, outputs_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<ExternKernel> kernel_;
};

} // namespace tbx::extern_kernels
