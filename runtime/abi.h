// The C interface between the runtime and generated kernels.
#pragma once

#include <cstdint>

namespace tbx::runtime {

extern "C" {
/// Runs tasks [begin, end) of a kernel. `buffers[b]` points at address 0 of the kernel's buffer b, `sizes`
/// holds the evaluated size arguments, `scratch` points at this thread's scratch (64-byte aligned). Returns
/// 0, or 1 + the number of the check that failed: then `scratch` begins with the index that is out of range
/// and the extent of its axis. The kernel never touches memory outside its buffers.
typedef int64_t (*KernelFunction)(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end,
                                  void* scratch);
}

} // namespace tbx::runtime
