// What tests of the schedule begin with.
#pragma once

#include <vector>

#include "fusion/schedule.h"
#include "graph_helper.h"

namespace tbx::test {

inline fusion::Schedule schedule_of(const GraphHelper& h, fusion::ScheduleOptions options = {},
                                    Target target = {}) {
  return fusion::schedule(lowering::lower_or_throw(h.graph), target, options);
}

/// Float32 zeros.
inline Tensor weights(std::vector<int64_t> dims) { return Tensor::make(DType::f32, std::move(dims)); }

} // namespace tbx::test
