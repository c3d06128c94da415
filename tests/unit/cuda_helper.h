// CUDA source as test cases: run by the emulator of the fake device, and by GPUs where there are any.
#pragma once

#include <memory>
#include <vector>

#include "kernel_helper.h"

namespace tbx::test {

/// Emits all cases as CUDA, and compares each with the evaluator on the fake device; on the GPU as well where
/// there is one. Where NVRTC is installed it also compiles them for the architectures of data centres.
/// Failures are test failures. The shared memory is that of the devices.
void run_cuda_cases(const std::vector<std::shared_ptr<KernelCase>>& cases, Gpu target = {});

} // namespace tbx::test
