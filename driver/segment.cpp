#include "driver/segment.h"

#include <algorithm>

#include "driver/kept_plan.h"
#include "runtime/session.h"

namespace tbx::driver {

using runtime::RunTensor;

namespace {

/// Values that must be known are few integers, or computed from few: worth a variant for each.
bool is_configuration(const Graph& graph, const std::vector<std::string>& inputs) {
  return std::all_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
    if (v < 0 || std::find(inputs.begin(), inputs.end(), graph.at(v).name) == inputs.end()) return true;
    const ValueType& type = graph.at(v).type;
    if (!is_integer(type.dtype) && type.dtype != DType::boolean) return false;
    if (!type.shape || type.shape->size() > 1) return false;
    return type.shape->empty() ||
           type.shape->front().as_constant().value_or(INT64_MAX) <= Specialiser::kFewElements;
  });
}

std::vector<std::string> names_of_inputs(const Graph& graph) {
  std::vector<std::string> names;
  for (ValueId v : graph.inputs) names.push_back(graph.at(v).name);
  return names;
}

} // namespace

Segment::Segment(Graph graph, std::shared_ptr<const CompileOptions> options)
    : graph_(std::move(graph)),
      specialiser_(std::make_unique<Specialiser>(
          names_of_inputs(graph_),
          [this](const std::vector<InputKind>& kinds, bool declared, CompileStats&, std::optional<Isa>) {
            return graph::copy_with(graph_, kinds, declared);
          },
          std::move(options))) {}

Segment::Segment(std::vector<std::string> inputs, std::function<std::shared_ptr<const Segment>()> original,
                 std::shared_ptr<const CompileOptions> options)
    : original_(std::move(original)),
      specialiser_(std::make_unique<Specialiser>(
          std::move(inputs),
          [this](const std::vector<InputKind>& kinds, bool declared, CompileStats&, std::optional<Isa>) {
            return graph::copy_with(graph(), kinds, declared);
          },
          std::move(options))) {}

Segment::~Segment() = default;

std::optional<lowering::Demand> Segment::lower() {
  std::vector<InputKind> kinds;
  if (!graph::declared_kinds(graph_, kinds)) return std::nullopt;
  auto graph = std::make_unique<const Graph>(graph::copy_with(graph_, kinds, true));
  auto demand = specialiser_->lower_declared(*graph, std::move(kinds));
  if (!demand) declared_ = std::move(graph);
  return demand;
}

bool Segment::wait_for_runs(const lowering::Demand& demand) {
  const bool inside = std::any_of(demand.values.begin(), demand.values.end(),
                                  [&](ValueId v) { return graph_.at(v).producer >= 0; });
  return specialiser_->note(demand) && (!inside || is_configuration(graph_, demand.inputs));
}

void Segment::build(PlanRecorder* recorder) {
  if (!declared_) {
    if (recorder) recorder->refuse("a part of the model is compiled for what a run brings");
    return;
  }
  specialiser_->build_declared(*declared_, recorder);
  declared_.reset();
}

void Segment::run(std::span<const RunTensor> inputs, std::span<RunTensor> outputs,
                  const runtime::RunOptions& options) const {
  for (Assume assume = Assume::broadcast_too;;) {
    auto variant = specialiser_->variant_for(inputs, assume);
    try {
      return variant->session->run(inputs, outputs, options);
    } catch (const runtime::AssumptionError&) {
      // Legal inputs, but not what was assumed of them: from now on the more general form is taken first.
      if (variant->made_for.assume == Assume::nothing) throw;
      assume = less_than(variant->made_for.assume);
    }
  }
}

} // namespace tbx::driver
