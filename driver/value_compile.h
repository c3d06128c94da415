// Value compile: a graph with values that no Plan holds (strings, sequences, optionals, maps, bodies that run
// an unknown number of times) -> a ValuePlan: segments of numeric tensors, compiled each, and steps between
// them.
#pragma once

#include <memory>
#include <vector>

#include "driver/compile.h"
#include "driver/segment.h"
#include "runtime/value_plan.h"

namespace tbx::driver {

/// The plan is data; what its stages are compiled from, and can be compiled again, are the segments.
struct ValueProgram {
  std::shared_ptr<const runtime::ValuePlan> plan;
  std::vector<std::shared_ptr<const Segment>> segments; ///< by stage, bodies' included
  CompileStats stats;

  std::shared_ptr<const runtime::BoundValuePlan> bind() const;
};

/// Throws Error. `stats`: what was spent before. `recorder` (may be null) gets the plan and its programs.
ValueProgram compile_values(Graph graph, const CompileOptions& options, CompileStats stats = {},
                            PlanRecorder* recorder = nullptr);
/// Sums of what the programs of the segments count, added to `stats`.
void add_stats_of_segments(const ValueProgram& program, CompileStats& stats);

} // namespace tbx::driver
