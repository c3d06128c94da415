// Segment: a part of a graph that holds numeric tensors only, compiled for the kinds of inputs it meets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "driver/specialiser.h"
#include "runtime/bind_values.h"

namespace tbx::driver {

class Segment : public runtime::TensorStage {
public:
  /// `graph` has only inputs that will be numeric tensors. `options` must live as long.
  Segment(Graph graph, std::shared_ptr<const CompileOptions> options);
  /// One of a kept plan: `original` gives the segment that it was made of, when a run brings what the program
  /// does not serve. `options` as above.
  Segment(std::vector<std::string> inputs, std::function<std::shared_ptr<const Segment>()> original,
          std::shared_ptr<const CompileOptions> options);
  ~Segment() override;

  /// Lowers for the declared types of the inputs, or leaves that to runs where their ranks are not known.
  /// What it demands instead names nodes and values of the graph given.
  std::optional<lowering::Demand> lower();
  /// Leaves it to runs to bring what is demanded. False where they cannot, or where each would have code of
  /// its own: what is demanded is made from data inside.
  bool wait_for_runs(const lowering::Demand& demand);
  /// After lower(), before build(): nothing is lowered, runs are waited for.
  bool waits() const { return !declared_; }
  /// Compiles what was lowered.
  void build(PlanRecorder* recorder = nullptr);
  /// For one of a kept plan: its program.
  void adopt(const runtime::MadeFor& made_for, Compiled compiled) {
    specialiser_->adopt(made_for, std::move(compiled));
  }
  std::shared_ptr<KeptProgram> take_kept() { return specialiser_->take_kept(); }
  void run(std::span<const runtime::RunTensor> inputs, std::span<runtime::RunTensor> outputs,
           const runtime::RunOptions& options) const override;

  const Specialiser& specialiser() const { return *specialiser_; }
  const Graph& graph() const { return original_ ? original_()->graph() : graph_; }

private:
  Graph graph_;
  std::function<std::shared_ptr<const Segment>()> original_; ///< has the graph; empty: it is here
  std::unique_ptr<Specialiser> specialiser_;
  std::unique_ptr<const Graph> declared_; ///< for the declared types; until it is built
};

} // namespace tbx::driver
