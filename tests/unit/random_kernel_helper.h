// Random kernels of all element types and loop shapes whose results are exact, whatever the order of sums.
#pragma once

#include <memory>

#include "kernel_helper.h"

namespace tbx::test {

/// Floats are small multiples of 1/8 and only meet operations that keep them so: sums are exact in any order.
std::shared_ptr<KernelCase> random_kernel(uint32_t seed);

} // namespace tbx::test
