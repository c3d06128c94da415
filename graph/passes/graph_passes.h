// Simplify: Graph -> Graph rewrites before lowering. Second stage. Each pass is named, timed and can be
// switched off.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/target.h"
#include "graph/graph.h"

namespace tbx::graph {

/// What passes depend on beside the graph.
struct PassContext {
  Target target;
  /// The narrower float that memory is to hold float32 values in (passes/narrow_storage.cpp); undefined:
  /// none.
  DType stored = DType::undefined;
  /// The narrower float of weights that products of one row read where they are not `stored` in it
  /// (passes/narrow_row_weights.cpp); undefined: none.
  DType row_weights = DType::undefined;
  /// So are values that the model has in another type of 16 bits; else those keep what the model gives them.
  bool halves_too = false;
  /// Told of each float32 constant that is made a float of 16 bits, and what becomes of it: kept plans read
  /// the former and make it the latter again. May be empty.
  std::function<void(const Tensor& from, const Tensor& to)> encoded = {};
};

struct Pass {
  const char* name;
  const char* what; ///< one line with the shape of the rewrite
  /// Returns the number of rewrites done. One of the two is set.
  int (*run)(Graph& graph);
  int makes_opset = 0; ///< the first version of ai.onnx that has the operators it makes; 0: any
  int (*run_for)(Graph& graph, const PassContext& context) = nullptr;
};

/// Pass::makes_opset of a pass that prepares our own lowering: not for a model that is written to a file.
inline constexpr int kCompileOnly = 1 << 30;

/// All passes in order (graph/passes/graph_passes.cpp); an order constraint is explained beside its line.
std::span<const Pass> graph_passes();

struct PassResult {
  std::string name;
  int rewrites = 0;
  double ms = 0;
};

/// Runs every pass not named in `disabled`; ModelError when a name is unknown. Verifies the graph after each
/// pass in debug builds, and an InternalError names the pass that broke it.
std::vector<PassResult> run_graph_passes(Graph& graph, std::span<const std::string> disabled = {},
                                         const PassContext& context = {});

} // namespace tbx::graph
