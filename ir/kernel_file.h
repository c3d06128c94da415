// Kernel file: kernels as bytes and back, so that the evaluator runs them where they were not made.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/kernel.h"

namespace tbx::ir {

/// A kernel and the name that it is asked for by.
using NamedKernel = std::pair<std::string, KernelProgram>;

/// Needs kernels of one Context. Equal ones give equal bytes.
std::string to_bytes(const std::vector<NamedKernel>& kernels);

/// The kernels, verified, in a Context of their own. Throws Error (model) that says what is wrong.
std::vector<NamedKernel> kernels_from_bytes(std::span<const std::byte> bytes);

} // namespace tbx::ir
