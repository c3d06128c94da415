// The operator registry: one line per operator and opset, next to the function that lowers it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "importer/graph.h"
#include "ir/tensor_box.h"

namespace tbx::lowering {

/// What a graph value is during lowering: a tensor, a sequence of static length, or an empty optional.
struct LoweredValue {
  ir::TensorBox tensor;
  std::shared_ptr<std::vector<LoweredValue>> sequence;
  bool is_none = false;
  LoweredValue() = default;
  LoweredValue(ir::TensorBox t) : tensor(std::move(t)) {}  // NOLINT: operators return tensors
};

/// One node being lowered: its inputs, attributes and the program that grows.
class OpContext {
 public:
  OpContext(ir::Program& program, const Graph& graph, const Node& node, std::vector<LoweredValue> inputs);

  ir::Program& program;
  ir::Context& c;  ///< == *program.context
  const Graph& graph;
  const Node& node;
  int opset() const { return node.opset; }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const;
  /// Input `i`; ModelError when it is missing or not a tensor.
  const ir::TensorBox& in(int i) const;
  const LoweredValue& value(int i) const { return inputs_[i]; }
  /// The integers of input `i` where they are known while compiling (constant or shape computation); else nullopt.
  std::optional<ir::SymInts> known(int i) const;
  /// Same, but UnsupportedError naming the input when they are not known.
  ir::SymInts known_or_throw(int i, std::string_view what) const;
  /// Input `i` as a constant tensor, or nullptr.
  std::shared_ptr<const Tensor> constant(int i) const;

  bool has_attr(std::string_view name) const;
  int64_t attr_int(std::string_view name, int64_t otherwise) const;
  float attr_float(std::string_view name, float otherwise) const;
  std::string attr_string(std::string_view name, std::string otherwise) const;
  std::vector<int64_t> attr_ints(std::string_view name, std::vector<int64_t> otherwise = {}) const;
  std::vector<float> attr_floats(std::string_view name) const;
  std::shared_ptr<const Tensor> attr_tensor(std::string_view name) const;
  /// ModelError when a required attribute is missing.
  int64_t required_int(std::string_view name) const;

  /// `axis` in [0, rank); ModelError naming the operator when it is outside [-rank, rank).
  int axis(int64_t axis, int rank) const;

 private:
  std::vector<LoweredValue> inputs_;
};

using LowerFn = std::function<std::vector<LoweredValue>(OpContext&)>;

/// How exact a comparison with a reference may be (tests).
enum class Rounding { exact, close, loose };

struct OpEntry {
  std::string domain, name;
  int since = 1;  ///< first opset of this form
  LowerFn lower;
  Rounding rounding = Rounding::close;
};

class Registry {
 public:
  /// `since(n)` of ai.onnx unless a domain is given. The newest entry not newer than the node's opset is used.
  OpEntry& add(std::string name, int since, LowerFn lower, std::string domain = "");
  const OpEntry* find(std::string_view domain, std::string_view name, int opset) const;
  std::vector<const OpEntry*> all() const;

  /// Filled once with every family.
  static const Registry& instance();

 private:
  std::map<std::pair<std::string, std::string>, std::map<int, OpEntry>> entries_;
};

inline int since(int opset) { return opset; }

// One function per family, each defined at the end of lowering/ops/<family>.cpp.
void register_all_ops(Registry& r);

}  // namespace tbx::lowering
