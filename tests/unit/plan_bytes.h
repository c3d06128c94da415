// A plan as a package has it, and what is spoilt of it.
#pragma once

#include <memory>
#include <random>
#include <span>
#include <string>

#include "runtime/executable_file.h"
#include "runtime/value_plan_file.h"

namespace tbx::test {

struct PlanBytes {
  std::string plan, tensors;
  bool operator==(const PlanBytes&) const = default;
};

/// Of an Executable or a ValuePlan.
template <class Plan> PlanBytes bytes_of(const Plan& plan) {
  TensorPool pool;
  PlanBytes b;
  b.plan = runtime::to_bytes(plan, pool);
  b.tensors = pool.to_string();
  return b;
}

/// What `from_bytes`, of either kind of plan, makes of them; it keeps the bytes.
template <class FromBytes> auto plan_of(const PlanBytes& bytes, FromBytes from_bytes) {
  auto kept = std::make_shared<const PlanBytes>(bytes);
  return from_bytes(std::as_bytes(std::span(kept->plan)), {std::as_bytes(std::span(kept->tensors)), kept});
}

/// Up to three bytes of the plan are others, mostly small numbers.
inline PlanBytes spoilt(PlanBytes bytes, std::mt19937& random) {
  for (int k = 0, n = 1 + static_cast<int>(random() % 3); k < n; ++k)
    bytes.plan[random() % bytes.plan.size()] =
        static_cast<char>(random() % 4 ? random() % 4 : random() % 256);
  return bytes;
}

} // namespace tbx::test
