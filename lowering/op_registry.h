// The operator registry: one line per operator and opset, next to the function that lowers it.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"
#include "ir/tensor_box.h"
#include "lowering/ask.h"
#include "lowering/element_needs.h"

namespace tbx::lowering {

/// Elements of a small tensor that are known while compiling, symbolically; row-major. A float tensor here
/// holds exact rationals: element i is values[i] / denominator. Integer and bool tensors have denominator 1.
struct KnownTensor {
  DType dtype = DType::i64;
  std::vector<int64_t> dims;
  ir::SymInts values;
  int64_t denominator = 1;
};

/// What a graph value is during lowering: a tensor (a complex one as two), a sequence of static length, or an
/// empty optional. A tensor given only as `constant` or `known` becomes a box when a lowering asks for it, so
/// shape computations leave nothing behind.
struct LoweredValue {
  ir::TensorBox tensor;
  std::shared_ptr<const Tensor> constant;
  std::shared_ptr<const KnownTensor> known;
  std::shared_ptr<std::vector<LoweredValue>> sequence;
  /// Complex: real and imaginary (lowering/complex.h).
  std::shared_ptr<const std::vector<LoweredValue>> parts;
  bool is_none = false;
  LoweredValue() = default;
  LoweredValue(ir::TensorBox t) : tensor(std::move(t)) {} // NOLINT: operators return tensors
  LoweredValue(std::shared_ptr<const Tensor> t) : constant(std::move(t)) {}                 // NOLINT
  LoweredValue(KnownTensor k) : known(std::make_shared<const KnownTensor>(std::move(k))) {} // NOLINT

  bool is_tensor() const { return tensor.defined() || constant || known || parts; }
  DType dtype() const;
  ir::SymInts sizes() const; ///< ModelError when it is no tensor
};

/// The value as a constant tensor; nullptr when it is none or depends on a symbol.
std::shared_ptr<const Tensor> constant_of(const LoweredValue& value);

/// Boxes of constants and known values, each made once per program.
class BoxPool {
public:
  const ir::TensorBox& box(ir::Program& program, const LoweredValue& value);

private:
  struct Entry {
    std::shared_ptr<const void> keep_alive;
    ir::TensorBox box;
  };
  std::map<const void*, Entry> boxes_;
};

using LowerSubgraphFn =
    std::function<std::vector<LoweredValue>(std::shared_ptr<const Graph> body, std::vector<LoweredValue>)>;

/// One node being lowered: its inputs, attributes and the program that grows.
class OpContext {
public:
  OpContext(ir::Program& program, const Graph& graph, const Node& node, std::vector<LoweredValue> inputs,
            BoxPool& pool, LowerSubgraphFn lower_subgraph);

  ir::Program& program;
  ir::Context& c; ///< == *program.context
  const Graph& graph;
  const Node& node;
  int opset() const { return node.opset; }

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const;
  /// Input `i`; ModelError when it is missing or not a tensor.
  const ir::TensorBox& in(int i) const;
  /// The box of any tensor value.
  const ir::TensorBox& box(const LoweredValue& value) const;
  /// Type and shape of input `i`, without making a buffer of a constant.
  DType dtype(int i) const;
  ir::SymInts sizes(int i) const;
  int rank(int i) const { return static_cast<int>(sizes(i).size()); }
  /// Input `i` whatever it is, an optional one that is left out included; ModelError where the node has fewer
  /// inputs.
  const LoweredValue& value(int i) const;
  /// The integers of input `i` where they are known while compiling (constant or shape computation); else
  /// nullopt.
  std::optional<ir::SymInts> known(int i) const;
  /// Same, but asks for the elements of the input when they are not known.
  ir::SymInts known_or_throw(int i, std::string_view what) const;
  /// Known and free of symbols; else asks for what they are made from.
  std::vector<int64_t> ints_or_throw(int i, std::string_view what) const;
  /// Input `i` with its shape as a known tensor (floats included), where it is one.
  std::shared_ptr<const KnownTensor> known_tensor(int i) const;
  /// Input `i` as a constant tensor, or nullptr.
  std::shared_ptr<const Tensor> constant(int i) const;
  std::shared_ptr<const Tensor> constant_or_throw(int i, std::string_view what) const;
  /// As ints_or_throw, but a value that is not known makes the node one that runs on run-time values.
  std::vector<int64_t> ints_or_run(int i, std::string_view what) const;
  /// As ints_or_throw and ints_or_run, of an input that holds one number; ModelError when it holds more or
  /// none.
  int64_t int_or_throw(int i, std::string_view what) const;
  int64_t int_or_run(int i, std::string_view what) const;
  /// True when output `i` is asked for.
  bool wants(int i) const;

  bool has_attr(std::string_view name) const;
  int64_t attr_int(std::string_view name, int64_t otherwise) const;
  float attr_float(std::string_view name, float otherwise) const;
  std::string attr_string(std::string_view name, std::string otherwise) const;
  std::vector<int64_t> attr_ints(std::string_view name, std::vector<int64_t> otherwise = {}) const;
  std::vector<float> attr_floats(std::string_view name) const;
  std::shared_ptr<const Tensor> attr_tensor(std::string_view name) const;
  std::shared_ptr<Graph> attr_graph(std::string_view name) const; ///< nullptr when missing
  std::vector<std::string> attr_strings(std::string_view name) const;
  /// ModelError when a required attribute is missing.
  int64_t required_int(std::string_view name) const;
  /// Attribute holding a TensorProto data type, as a numeric type.
  DType attr_dtype(std::string_view name, DType otherwise) const;

  /// `axis` in [0, rank); ModelError naming the operator when it is outside [-rank, rank).
  int axis(int64_t axis, int rank) const;
  /// Same for a list; ModelError on duplicates. Sorted.
  std::vector<int> axes(std::span<const int64_t> axes, int rank) const;

  /// Lowers a body graph (If branch, function) in place; captured values come from the graph of this node.
  LowerSubgraphFn lower_subgraph;
  BoxPool& pool;

private:
  template <class T> const T* attribute(std::string_view name) const;
  const LoweredValue& tensor_value(int i) const;

  std::vector<LoweredValue> inputs_;
};

using LowerFn = std::function<std::vector<LoweredValue>(OpContext&)>;

/// What an operator asks of the memory that its float32 inputs and results go through, when a model is run
/// with narrower floats (graph/passes/narrow_storage.cpp). It computes in float32 in any case.
enum class Narrow : uint8_t {
  sensitive,   ///< inputs and results as they are: what amplifies errors, and whatever is not listed
  wide_inputs, ///< the inputs as they are, the results may be narrow (softmax)
  follows,     ///< both may be narrow
  view,        ///< the result shows the memory of its input
  product,     ///< multiplies narrow operands, where input 1 is a constant of any type it was made
};

/// What others than its lowering need to know of an operator, in all its forms.
enum class Trait : uint8_t {
  random,      ///< draws random numbers: its results are never folded, and two of them are never one
  selects,     ///< its result is as large as elements decide, and about as large as the inputs at most
  elementwise, ///< of broadcast inputs, place by place: the order of dimensions means nothing to it
  moves,       ///< its result has elements of the inputs in other places (where Registry::moves() says so)
  rearranges,  ///< its result has the elements of input 0, each once, in the same or another order
  compares,    ///< asks of elements only which are equal, and which less
  tests,       ///< asks of elements only whether they are zero, or empty
  by_part, ///< besides operators that move: of complex numbers, each part of the result is that of the parts
  by_pair, ///< keeps complex numbers or leaves them out, whole, along its axis
  recasts, ///< the bits of input 0 as elements of another type, which the attribute "to" names
  any_values,  ///< passes values on as they are, whatever they are
  runs_bodies, ///< its bodies can run as graphs of their own, where a model has other values than tensors
  on_values,   ///< always runs so, on values of a run
  reads_shape, ///< reads no element
  has_gates,   ///< multiplies input 0 by input 1, and a state that goes from step to step by input 2
  convolves,   ///< input 0 with input 1
  has_weights, ///< takes constants of a type of their own for input 1
  by_body, ///< differentiated by the body that ONNX defines: its lowering calls kernels that no expression
           ///< says
  no_gradient,  ///< its results stay as they are when elements change by little, or are no numbers of theirs
  keeps_first,  ///< integers of input 0 come out again, unchanged
  keeps_others, ///< the same of the inputs behind it
  /// A rounded quotient may enter: it moves elements, or rounds to integers. The latter give what they give
  /// for the exact quotient p / q as long as p and q are at most 2^n, n the bits of the significand: a p / q
  /// that is no integer is farther from one than it is rounded.
  takes_quotients,
  // Of float16 and bfloat16 values (graph/passes/widen_halves.cpp):
  half_product, ///< is worth float32 operands whatever its neighbours are
  half_rows,    ///< rows go into memory once, in the type that their readers want
  half_follows, ///< computes the same on float32 values, rounded less often; asks for no type by an attribute
  half_lookup,  ///< reads places of input 0, whose type is that of the result
};

struct OpEntry {
  std::string domain, name;
  int since = 1; ///< first opset of this form
  LowerFn lower;
  Narrow narrow = Narrow::sensitive;
};

class Registry {
public:
  /// `since(n)` of ai.onnx unless a domain is given. The newest entry not newer than the node's opset is
  /// used.
  OpEntry& add(const std::string& name, int since, LowerFn lower, const std::string& domain = "");
  /// Sets the trait of operators that are registered, in all their forms.
  void narrow(Narrow trait, std::initializer_list<const char*> names, const std::string& domain = "");
  void mark(Trait trait, std::initializer_list<const char*> names, const std::string& domain = "");
  bool has(Trait trait, const Node& node) const;
  /// Operators that move elements only where the attribute says `value`; where it is left out, it says
  /// `otherwise`.
  void moves_where(std::initializer_list<const char*> names, const char* attribute, const char* value,
                   const char* otherwise);
  bool moves(const Node& node) const;
  /// A classifier that takes its labels from the attribute "classlabels_strings" or, integers, from this one.
  void labels_in(const char* attribute, const char* name, const std::string& domain);
  /// The attribute for integers; nullptr: it is no classifier.
  const std::string* labels_of(const Node& node) const;
  /// Results have the type of this input; for operators that the importer knows no types of.
  void type_from(int input, std::initializer_list<const char*> names, const std::string& domain = "");
  int type_giver(const Node& node) const; ///< -1: not said
  /// Inputs [first, end) are masks: what they hide may be the lowest number of their type.
  void masks(int first, int end, std::initializer_list<const char*> names, const std::string& domain = "");
  bool is_mask(const Node& node, int input) const;
  /// Keys and values of the past are this input and the next one; where they are a session's state, the
  /// operator appends to them (kKeptPast).
  void past_at(int input, std::initializer_list<const char*> names, const std::string& domain = "");
  int past_of(const Node& node) const; ///< -1: none
  /// What the operator needs the integers of an input to be; nullptr: nothing is known.
  void need(const char* name, size_t input, const NeedOf& need, const std::string& domain = "");
  const NeedOf* need_of(const Node& node, size_t input) const;
  const OpEntry* find(std::string_view domain, std::string_view name, int opset) const;
  std::vector<const OpEntry*> all() const; ///< by domain, name and opset

  /// Filled once with every family.
  static const Registry& instance();

private:
  struct Facts {
    uint32_t traits = 0;
    int type_giver = -1, past = -1;
    int first_mask = 0, end_of_masks = 0;
    std::array<const char*, 3> moving{}; ///< attribute, value, otherwise of moves_where()
    std::string labels;                  ///< of labels_in()
    std::map<size_t, NeedOf> needs;
  };
  /// Domain and name. Looking for them copies no text.
  using Name = std::pair<std::string, std::string>;
  using NameView = std::pair<std::string_view, std::string_view>;
  struct NameHash {
    using is_transparent = void;
    size_t operator()(const NameView& n) const {
      const std::hash<std::string_view> hash;
      return hash(n.second) + 31 * hash(n.first);
    }
  };
  struct NameEqual {
    using is_transparent = void;
    bool operator()(const NameView& a, const NameView& b) const { return a == b; }
  };
  template <class T> using ByName = std::unordered_map<Name, T, NameHash, NameEqual>;

  Facts& facts_for(std::string_view domain, std::string_view name);
  const Facts* facts_of(const Node& node) const;

  ByName<std::map<int, OpEntry>> entries_;
  ByName<Facts> facts_; ///< also of operators that run through their body
};

/// Of an operator with this trait.
inline bool has(Trait trait, const Node& node) { return Registry::instance().has(trait, node); }

/// The input that has the type of the first result, of operators that ONNX knows no types of; -1: not said.
inline int type_giver(const Node& node) { return Registry::instance().type_giver(node); }

inline int since(int opset) { return opset; }

/// Lowers as if the node were this ai.onnx operator with these inputs.
std::vector<LoweredValue> lower_as(OpContext& ctx, const std::string& op_type, int opset,
                                   std::vector<LoweredValue> inputs,
                                   std::map<std::string, Attribute> attributes);

/// Calls the register function of every family (lowering/ops/families.h).
void register_all_ops(Registry& r);

} // namespace tbx::lowering
