// Value plan file: a ValuePlan as bytes and back, a part of a package. Its stages are parts of their own.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/tensor_pool.h"
#include "runtime/value_plan.h"

namespace tbx::runtime {

/// Needs a verified plan. The elements of constants go into `tensors`.
std::string to_bytes(const ValuePlan& plan, TensorPool& tensors);

/// The plan as it was written, not yet verified (runtime/verify.h). Throws Error (model) that says what is
/// wrong with the bytes.
ValuePlan value_plan_from_bytes(std::span<const std::byte> bytes, TensorMemory tensors);

} // namespace tbx::runtime
