// Segment: a part of a graph that holds numeric tensors only, compiled for the kinds of inputs it meets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "driver/compile.h"
#include "driver/specialiser.h"
#include "graph/partition/graph_part.h"
#include "runtime/value_plan.h"

namespace tbx::driver {

class Segment : public runtime::TensorStage {
public:
  /// `graph` has only inputs that will be numeric tensors. `options` must live as long.
  Segment(Graph graph, std::shared_ptr<const CompileOptions> options);
  ~Segment() override;

  /// Compiles for the declared types of the inputs. False when that must wait for a run, since their ranks or
  /// values are not known. Throws Error; lowering::RuntimeValueError with a node of the graph given.
  bool prepare();
  void run(std::span<const runtime::RunTensor> inputs, std::span<runtime::RunTensor> outputs,
           const runtime::RunOptions& options) const override;

  /// What was compiled so far, as a package needs to know it.
  struct Kind {
    std::vector<InputKind> kinds;
    bool trust_shapes = false;
    Specialisation specialisation;
    runtime::MadeFor made_for;
  };
  std::vector<Kind> kinds() const;
  /// Names of inputs on whose elements or shapes the code depends.
  std::vector<std::string> needs() const;
  /// What was compiled so far, in order.
  std::vector<std::shared_ptr<const Compiled>> compiled() const;
  const Graph& graph() const { return graph_; }

  /// Values that must be known are few integers, or computed from few: worth a variant for each.
  static bool is_configuration(const Graph& graph, const std::vector<std::string>& inputs);

private:
  struct Variant;
  /// What was learnt from compilations.
  struct Needs {
    std::vector<size_t> value_inputs; ///< inputs whose elements the compiled code depends on
    bool exact_values = false;        ///< on their very numbers, where those are sizes or positions, too
    bool by_shapes = false;           ///< the code depends on the sizes of the inputs
  };
  std::shared_ptr<const Variant> variant_for(std::span<const runtime::RunTensor> inputs, Assume assume) const;
  std::shared_ptr<Variant> compile(std::vector<InputKind> kinds, bool trust_shapes,
                                   Specialisation made_for) const;
  /// Takes note of what must be known; false when that is nothing new.
  bool learn(Needs& needs, const lowering::UnknownValueError& e) const;

  Graph graph_;
  std::shared_ptr<const CompileOptions> options_;
  mutable Specialiser<Variant, Needs> variants_;
};

} // namespace tbx::driver
