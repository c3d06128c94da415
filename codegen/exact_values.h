// Exact values: those of a kernel whose last bit may decide about something.
#pragma once

#include <unordered_set>

#include "ir/kernel.h"

namespace tbx::codegen {

/// What is rounded to whole numbers or to few bits, compared, or used as an index, and all that it is made
/// of. Other results change little where such values do, so that their arithmetic may be fused.
std::unordered_set<ir::Expr> exact_values(const ir::KernelProgram& kernel);

} // namespace tbx::codegen
