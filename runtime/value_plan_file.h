// Value plan file: a ValuePlan as bytes and back, a part of a package. Its stages are elsewhere: they are
// named by their place in a list.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor_pool.h"
#include "runtime/value_plan.h"

namespace tbx::runtime {

/// All stages must be in `stages`. The elements of constants go into `tensors`.
std::string to_bytes(const ValuePlan& plan, std::span<const TensorStage* const> stages, TensorPool& tensors);

/// Throws Error (model) that says what is wrong.
std::shared_ptr<const ValuePlan>
value_plan_from_bytes(std::span<const std::byte> bytes, TensorMemory tensors,
                      std::span<const std::shared_ptr<const TensorStage>> stages);

} // namespace tbx::runtime
