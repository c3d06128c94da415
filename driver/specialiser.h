// Specialiser: the only door from a running session back to the compiler. It serves what a run needs that was
// not known before: shapes, elements of inputs, weaker assumptions; for whole models as for parts of them and
// bodies.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "driver/compile.h"
#include "driver/next_tier.h"
#include "driver/variant_cache.h"
#include "graph/partition/graph_part.h"
#include "package/session_impl.h"

namespace tbx::driver {

using runtime::InputKind;

class Specialiser {
public:
  /// Of an integer tensor of as many elements at most, code for any sizes may be made of each element.
  static constexpr int64_t kFewElements = 64;

  /// A program, the inputs it serves, and what it was made from.
  struct Variant : package::Program {
    runtime::MadeFor made_for;
    Specialisation specialisation;
    bool declared = false; ///< made from the graph as it is declared
    CompileStats stats;
    std::unique_ptr<NextTier> next; ///< of one that is evaluated until its kernels are compiled
  };
  using VariantPtr = std::shared_ptr<const Variant>;
  /// The graph for inputs of these kinds, each time in a Context of its own. `declared`: for the kinds that
  /// the model declares, none of which need be given. `isa`: simplified for any machine that runs it, none:
  /// for this one.
  using GraphFor = std::function<Graph(const std::vector<InputKind>& kinds, bool declared,
                                       CompileStats& stats, std::optional<Isa> isa)>;

  /// `inputs` are the names of the graph's. `options` are those of the session, limits included.
  Specialiser(std::vector<std::string> inputs, GraphFor graph_for,
              std::shared_ptr<const CompileOptions> options);

  /// Another one of the same graph, which knows what this one has learnt and has compiled nothing.
  std::unique_ptr<Specialiser> another() const;

  /// Before any run: lowers the graph as it is declared, for inputs of these kinds (none: for any). What it
  /// demands instead is the caller's to decide on; note() takes it as something that runs will bring.
  std::optional<lowering::Demand> lower_declared(const Graph& graph, std::vector<InputKind> kinds,
                                                 CompileStats stats = {});
  /// Compiles what was lowered, of the same graph. `recorder` (may be null) as for compile_program().
  VariantPtr build_declared(const Graph& graph, PlanRecorder* recorder = nullptr);
  /// What that recorder is to keep; null: nothing.
  std::shared_ptr<KeptProgram> take_kept() { return std::move(kept_); }
  /// Instead of lower_declared() and build_declared(): the program that they gave once.
  VariantPtr adopt(const runtime::MadeFor& made_for, Compiled compiled);
  /// Code waits for the runs, and depends on what is demanded. False when that is nothing new, or when no run
  /// can bring it.
  bool note(const lowering::Demand& demand);

  /// The variant for these inputs that takes no more for granted, compiled where there is none. Throws Error.
  VariantPtr variant_for(std::span<const runtime::RunTensor> inputs, Assume assume);

  /// The graph that a variant was compiled from, anew, for a package for `isa`.
  Graph graph_of(const Variant& v, std::optional<Isa> isa) const;
  /// All that was compiled and is kept, newest first.
  std::vector<VariantPtr> variants() const { return variants_.variants(); }
  /// The one used last, or nullptr.
  VariantPtr latest() const { return variants_.latest(); }
  /// Names of inputs on whose elements the code depends, or, with `or_shapes`, on whose shapes.
  std::vector<std::string> needs(bool or_shapes) const;
  bool depends_on_shapes() const {
    const Needs needs = variants_.knowledge();
    return needs.by_shapes || !needs.sizes.empty();
  }
  const std::vector<std::string>& inputs() const { return inputs_; }

private:
  /// What was learnt from demands.
  struct Needs {
    std::vector<size_t> value_inputs; ///< inputs whose elements the compiled code depends on
    bool exact_values = false;        ///< on their very numbers, where those are sizes or positions, too
    bool by_shapes = false;           ///< the code depends on the sizes of the inputs
    /// The code depends on these sizes: on whether each is 0, 1 or more, or, where `exact`, on the number.
    struct Size {
      size_t input;
      int axis;
      bool exact;
    };
    std::vector<Size> sizes;
  };
  using Cache = VariantCache<Variant, Needs>;

  bool learn(Needs& needs, const lowering::Demand& demand) const;
  bool learn_sizes(Needs& needs, const lowering::Demand& demand) const;
  Cache::Request request(const Needs& needs, std::span<const runtime::RunTensor> inputs, Assume assume) const;
  VariantPtr build(LoweredGraph lowered, const Graph& graph, std::vector<InputKind> kinds, bool declared,
                   PlanRecorder* recorder, std::shared_ptr<KeptProgram>* kept) const;
  void finish(Variant& v, Compiled compiled) const;
  VariantPtr next_of(const VariantPtr& v);

  const std::vector<std::string> inputs_;
  const GraphFor graph_for_;
  const std::shared_ptr<const CompileOptions> options_;
  std::optional<LoweredGraph> lowered_; ///< between lower_declared() and build_declared()
  std::vector<InputKind> declared_kinds_;
  std::shared_ptr<KeptProgram> kept_; ///< of build_declared()
  Cache variants_;
};

} // namespace tbx::driver
