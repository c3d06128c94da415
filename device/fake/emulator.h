// Emulator: runs generated CUDA kernels on the CPU, a fibre for each thread of a block, so that barriers,
// shuffles and shared memory mean what they mean on a GPU. For tests: it is exact, not fast.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"

namespace tbx::device::fake {

/// The text for a C++ compiler (-std=c++20 -shared): `source` is prelude and kernels as for NVRTC, `kernels`
/// are the names of those that are launched.
std::string emulated_source(std::string_view source, const std::vector<std::string>& kernels);

/// State that the shim of a loaded object shares with the emulator (struct emulation in shim.inc).
struct Shared {
  struct Dim {
    unsigned x = 0, y = 0, z = 0;
  };
  Dim thread, block, block_dim, grid_dim;
  void (*block_barrier)() = nullptr;
  void (*exchange)(void* value, unsigned long bytes, int lane) = nullptr;
  int (*vote)(int value, bool any) = nullptr;
  void (*wait_before)() = nullptr;
};

/// A kernel of a loaded object.
struct EmulatedKernel {
  void (*call)(void* const* arguments) = nullptr;
  unsigned long (*size)(int i) = nullptr; ///< bytes of parameter i
  Shared* shared = nullptr;
  std::string name;
};

/// Runs all blocks, one after another; within a block threads take turns at barriers. Both orders are drawn
/// from `seed`. Throws BackendError where the threads of a block wait for each other for ever, and where not
/// all threads of a launch that may start early wait for what is before it.
void emulate(const EmulatedKernel& kernel, const LaunchShape& shape, std::span<void* const> arguments,
             uint32_t seed);

} // namespace tbx::device::fake
