// CUDA source as test cases: compiled by nvcc for the architectures of data centres, run where there is a
// GPU.
#pragma once

#include <memory>
#include <vector>

#include "kernel_helper.h"

namespace tbx::test {

/// nvcc's path, empty when there is none.
std::string find_nvcc();
/// Emits all cases as CUDA, compiles them for sm_80 and sm_90; where a GPU is found, compares each with the
/// evaluator. Failures are test failures.
void run_cuda_cases(const std::vector<std::shared_ptr<KernelCase>>& cases);

} // namespace tbx::test
