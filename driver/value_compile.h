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

struct ValueProgram {
  std::shared_ptr<const runtime::ValuePlan> plan;
  std::vector<std::shared_ptr<const Segment>> segments; ///< bodies' included, in order of compilation
  CompileStats stats;
};

/// Throws Error. `stats`: what was spent before.
ValueProgram compile_values(Graph graph, const CompileOptions& options, CompileStats stats = {});

/// "tensor(float32)", "sequence(tensor(string))", "map(int64, tensor(float32))".
std::string type_text(const ValueType& type);

} // namespace tbx::driver
