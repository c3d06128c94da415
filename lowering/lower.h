// Lower: Graph -> Program of TensorBox operations, or what is needed for one. Third stage; shape computations
// dissolve into SymInts here.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <variant>

#include "graph/graph.h"
#include "ir/tensor_box.h"
#include "lowering/demand.h"

namespace tbx::lowering {

struct LowerOptions {
  bool allow_expansion = true;      ///< operators without a lowering use their ONNX function body
  bool assume_broadcast = false;    ///< see ir::Program::assume_broadcast
  bool assume_exact_floats = false; ///< see ir::Program::assume_exact_floats
  bool fold_constants = true; ///< nodes of small constants are evaluated (function bodies compute with them)
  Target target;
  /// Graph inputs whose values are fixed while compiling: the program is right for these values only. The
  /// inputs stay in its signature. What Demand::inputs asks for.
  std::map<std::string, std::shared_ptr<const Tensor>> known_inputs;
  /// Graph inputs of a few integers (rank 0 or 1) of which some are fixed; the others are symbols called
  /// element_symbol(), of at least kMinElement, which a run binds to the elements.
  std::map<std::string, std::vector<std::optional<int64_t>>> element_inputs;
  /// Told of each value of the graph whose elements turn out to be constant.
  std::function<void(ValueId, const std::shared_ptr<const Tensor>&)> constant_found;
};

inline constexpr int64_t kMinElement = 2; ///< 0 and 1 mean something of their own in shapes
std::string element_symbol(const std::string& input, size_t element);

using Lowered = std::variant<ir::Program, Demand>;

/// Needs a verified graph. Guarantees a verified program whose outputs are realized. Errors carry the node.
/// Buffers of complex inputs and outputs hold real and imaginary parts along a last dimension of 2.
Lowered lower(const Graph& graph, const LowerOptions& options = {});
/// For callers who can give nothing more: throws the reason of a demand.
ir::Program lower_or_throw(const Graph& graph, const LowerOptions& options = {});

/// Evaluates a graph whose inputs are all constant (constant folding). Gives the outputs, or throws.
std::vector<Tensor> evaluate_constant_node(const Graph& graph, const Node& node,
                                           int64_t max_elements = INT64_MAX);

} // namespace tbx::lowering
