// Kernels for a device: emitted CUDA text -> what Device::load takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/build_module.h"
#include "codegen/emit.h"
#include "device/cuda/nvrtc.h"
#include "device/device.h"

namespace tbx::codegen {

/// Machine code of the distinct kernels for an architecture: a cubin by NVRTC for "sm_90" and the like, for
/// the fake device an object of the C++ compiler. Throws BackendError with the compiler's message.
std::string device_binary(const std::vector<EmittedKernel>& kernels, const device::Properties& properties,
                          const Toolchain& toolchain = {});

/// Text of the distinct kernels, as NVRTC takes it.
std::string device_source(const std::vector<EmittedKernel>& kernels);

/// Machine code and what it is called in the kernel cache.
struct DeviceBinary {
  std::string code;
  std::string key;     ///< without the compiler's name, as KernelUnit::key
  bool cached = false; ///< it was there
};

/// The same out of the kernel cache, or compiled and kept there.
DeviceBinary cached_device_binary(const std::vector<EmittedKernel>& kernels,
                                  const device::Properties& properties, const Toolchain& toolchain);

/// What an earlier process kept under the key, made by the compiler that is here; nothing where it is gone.
std::optional<std::string> kept_device_binary(const std::string& key, const device::Properties& properties,
                                              const Toolchain& toolchain);

/// The kernel cache for machine code of library kernels (device/cuda/nvrtc.h).
std::shared_ptr<device::cuda::BinaryCache> binary_cache(const Toolchain& toolchain);

/// Most blocks that a launch has where each needs scratch memory, or none does.
int64_t most_blocks(bool scratch, const device::Properties& properties);
/// Teams of one block.
int teams_of_block(const EmittedKernel& kernel);

/// Enough blocks that every task has a place of its own; few where blocks need scratch memory, which is given
/// to each.
device::LaunchShape launch_shape(const EmittedKernel& kernel, int64_t tasks,
                                 const device::Properties& properties);

/// Bytes of scratch memory of all teams of a launch; `scratch_bytes` is the value of kernel.scratch_bytes.
int64_t scratch_of_launch(const EmittedKernel& kernel, const device::LaunchShape& shape,
                          int64_t scratch_bytes);

} // namespace tbx::codegen
