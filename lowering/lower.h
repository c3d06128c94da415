// Lower: Graph -> Program of TensorBox operations. Third stage; shape computations dissolve into SymInts
// here.
#pragma once

#include <functional>
#include <map>
#include <optional>

#include "base/error.h"
#include "graph/graph.h"
#include "ir/tensor_box.h"

namespace tbx::lowering {

/// A node needs the elements of a value while compiling (axes, sizes, ...) and they are not known. `inputs`
/// are the graph inputs they are computed from: giving those as LowerOptions::known_inputs resolves it.
class UnknownValueError : public Error {
public:
  UnknownValueError(std::string message, std::vector<ValueId> values);
  std::vector<ValueId> values;     ///< of the graph that is being lowered
  std::vector<std::string> inputs; ///< set by lower()
  std::vector<ValueId> needed;     ///< what the node needs, as it reads it: set by lower(), with `node`
  int node = -1;                   ///< of the graph that is being lowered
  bool of_shapes = false;          ///< what must be known are the sizes of the graph inputs
};

/// A node works on values that no program holds: strings, sequences of unknown length, bodies that run an
/// unknown number of times. `node` is its index in the graph that is being lowered (-1: an input or output is
/// such a value). The driver then splits the graph there (driver/value_compile.h).
class RuntimeValueError : public Error {
public:
  explicit RuntimeValueError(std::string message, std::string hint = {})
      : Error(ErrorKind::unsupported, std::move(message), std::move(hint)) {}
  int node = -1;
};

struct LowerOptions {
  bool allow_expansion = true;      ///< operators without a lowering use their ONNX function body
  bool assume_broadcast = false;    ///< see ir::Program::assume_broadcast
  bool assume_exact_floats = false; ///< see ir::Program::assume_exact_floats
  bool fold_constants = true; ///< nodes of small constants are evaluated (function bodies compute with them)
  Target target;
  /// Graph inputs whose values are fixed while compiling: the program is right for these values only. The
  /// inputs stay in its signature. What UnknownValueError::inputs asks for.
  std::map<std::string, std::shared_ptr<const Tensor>> known_inputs;
  /// Graph inputs of a few integers (rank 0 or 1) of which some are fixed; the others are symbols called
  /// element_symbol(), of at least kMinElement, which a run binds to the elements.
  std::map<std::string, std::vector<std::optional<int64_t>>> element_inputs;
  /// Told of each value of the graph whose elements turn out to be constant.
  std::function<void(ValueId, const std::shared_ptr<const Tensor>&)> constant_found;
};

inline constexpr int64_t kMinElement = 2; ///< 0 and 1 mean something of their own in shapes
std::string element_symbol(const std::string& input, size_t element);

/// Needs a verified graph. Guarantees a verified program whose outputs are realized. Errors carry the node.
/// Buffers of complex inputs and outputs hold real and imaginary parts along a last dimension of 2.
ir::Program lower(const Graph& graph, const LowerOptions& options = {});

/// Evaluates a graph whose inputs are all constant (constant folding). Gives the outputs, or throws.
std::vector<Tensor> evaluate_constant_node(const Graph& graph, const Node& node,
                                           int64_t max_elements = INT64_MAX);

} // namespace tbx::lowering
