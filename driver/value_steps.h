// Nodes that run on values, as steps of a ValuePlan. Used by value_compile.cpp.
#pragma once

#include <functional>

#include "driver/value_compile.h"

namespace tbx::driver {

/// Compiles graphs and their bodies; collects the segments of all.
class ValueCompiler {
public:
  /// `recorder` (may be null) as for compile_program().
  ValueCompiler(std::shared_ptr<const CompileOptions> options, PlanRecorder* recorder)
      : options_(std::move(options)), recorder_(recorder) {}

  /// The last `num_captures` inputs are captured by a body: they keep their values from run to run.
  std::shared_ptr<const runtime::ValuePlan> compile(Graph& g, size_t num_captures, bool is_body);
  std::shared_ptr<Segment> segment(const Graph& g, const std::vector<int>& nodes,
                                   const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs,
                                   bool simplify, std::vector<ValueId>& from);
  /// A body of a node of `outer`; `slot` numbers the values it captures.
  runtime::BodyCall body(const Graph& outer, const std::shared_ptr<Graph>& graph,
                         const std::function<int(ValueId)>& slot);

  std::vector<std::shared_ptr<const Segment>> segments; ///< by the numbers that plans have for them

private:
  std::shared_ptr<const CompileOptions> options_;
  PlanRecorder* recorder_;
  int depth_ = 0;
};

runtime::ValueEntry make_entry(const Graph& g, ValueId v, int slot);
/// Throws Error when attributes or bodies do not fit the operator.
decltype(runtime::ValueStep::what) make_value_step(const Graph& g, const Node& node, ValueCompiler& compiler,
                                                   const std::function<int(ValueId)>& slot);

} // namespace tbx::driver
