// Plain loops on a GPU: their parameters, and how they are compiled and started.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "extern_kernels/kernel.h"

namespace tbx::extern_kernels::cuda {

#define TBX_ARGUMENTS(...) __VA_ARGS__
#include "extern_kernels/cuda/loops_arguments.inc"
#undef TBX_ARGUMENTS

/// CUDA text of a kernel in loops.inc for operands of types `a` and `b` (attention: the mask's) and results
/// `c`. `wide`: columns of the values that a thread of attention holds.
enum class Loop : uint8_t { product, convolution, finishing, rows, attention };
std::string loops_text(Loop kernel, DType a, DType b, DType c, int64_t wide = 1);

/// The structures of loops_arguments.inc, for other texts that have them as parameters.
std::string loops_arguments();
/// Machine code of a text for an architecture, made once per process.
const std::string& compiled(const std::string& text, const std::string& architecture);

/// The text as a module of a device. Kernels of the same text have the same one, as long as any of them is
/// there.
std::shared_ptr<device::Module> loaded(device::Device& device, const std::string& text);

/// One of these kernels.
class LoopKernel {
public:
  LoopKernel(device::Device& device, Loop kernel, DType a, DType b, DType c, int64_t wide = 1);
  void launch(device::Stream& stream, const device::LaunchShape& shape,
              std::span<void* const> arguments) const;
  const device::Properties& properties() const { return properties_; }

private:
  device::Properties properties_;
  std::shared_ptr<device::Module> module_;
  device::Kernel kernel_;
};

/// Blocks of threads for so many results, each of which may do several.
device::LaunchShape shape_of_elements(int64_t elements, const device::Properties& properties);

/// 90 of "sm_90"; 0 of what is no GPU.
int architecture_number(const device::Properties& properties);
/// Blocks of a cluster read each other's shared memory.
bool has_clusters(const device::Properties& properties);
inline constexpr int kLargestCluster = 8; ///< blocks that every GPU with clusters takes
/// Whether texts of ours are to begin before the kernel before them ends, for which they wait themselves
/// (griddepcontrol). The fake device starts kernels early, too, but these texts have no form for it.
bool begins_early(const device::Properties& properties);

/// For n / d without a division, n below 2^31 (Granlund and Montgomery, Division by Invariant Integers using
/// Multiplication, 1994). `d`: from 1 to 2^31.
Divisor divisor_of(int64_t d);

/// An operand that broadcasts to `sizes`, its dimensions counted from the last; absent: no data.
View view_of(const TensorRef& t, std::span<const int64_t> sizes);
/// The same of at most four dimensions.
HeadsView heads_view_of(const TensorRef& t, std::span<const int64_t> sizes);
PostSteps steps_of(const std::vector<PostOp>& ops, std::span<const TensorRef> inputs,
                   std::span<const int64_t> sizes);
/// Empty when loops can be made of the operands and post-operations.
std::string loops_refuse(std::span<const OperandInfo> inputs, std::span<const OperandInfo> outputs,
                         const std::vector<PostOp>& post_ops);

} // namespace tbx::extern_kernels::cuda
