// Value operators: operators that work on run-time values of any ONNX type (strings, sequences, optionals,
// maps) and run on the host between the compiled parts of a model. One line in value_ops.inc and one function
// each.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/value.h"
#include "extern_kernels/attributes.h"

namespace tbx::runtime {

/// A node as its operator sees it while the model is prepared: once, before any run.
struct ValueNode {
  std::string domain, op;
  int opset = 0;
  extern_kernels::Attributes attributes; ///< as in the file: no defaults filled in
  std::vector<bool> wanted;              ///< per output: somebody reads it
  std::vector<DType> output_types;       ///< tensors: where known, else undefined

  bool has(const char* name) const { return attributes.count(name) != 0; }
  /// The attribute, or the default where it is left out; ModelError when it has another type.
  int64_t integer(const char* name, int64_t otherwise) const;
  DType data_type(const char* name) const; ///< ModelError when it is left out or names no type
  double real(const char* name, double otherwise) const;
  std::string text(const char* name, std::string otherwise) const;
  std::vector<int64_t> integers(const char* name) const;
  std::vector<double> reals(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  std::shared_ptr<const Tensor> tensor(const char* name) const; ///< nullptr: left out
};

/// One input of a call. Nobody else reads the value afterwards when `last_use`.
struct ValueArgument {
  RuntimeValue* value = nullptr; ///< nullptr: left out
  bool last_use = false;
};

/// One call at run time; the outputs are to be filled. Throws what a call throws: Error (model).
struct ValueCall {
  std::span<const ValueArgument> inputs;
  std::span<RuntimeValue> outputs;
  int64_t room = INT64_MAX; ///< bytes that the results may take

  int num_inputs() const { return static_cast<int>(inputs.size()); }
  /// Given, and not an empty optional.
  bool has(int i) const { return i < num_inputs() && inputs[i].value && !inputs[i].value->is_none(); }
  /// Input `i`; ModelError when it is missing.
  const RuntimeValue& value(int i) const;
  /// A tensor; dense, row-major.
  const Tensor& tensor(int i) const;
  const Tensor& tensor(int i, DType dtype) const;
  /// The elements of a tensor of strings.
  const std::vector<std::string>& strings(int i) const;
  const std::vector<RuntimeValue>& sequence(int i) const;
  /// The only element of an integer (or bool) tensor.
  int64_t integer(int i) const;
  /// The value itself where this call is its last reader (a sequence can then grow in place), else a copy.
  RuntimeValue take(int i) const;

  /// ModelError where `count` elements of `each` bytes are more than there is room for.
  void need(int64_t count, int64_t each) const;
  /// Makes output `i` a tensor and gives it to be filled.
  Tensor& make(int i, DType dtype, std::vector<int64_t> dims) const;
  /// The same for strings: as many empty ones as `dims` say.
  std::vector<std::string>& make_strings(int i, std::vector<int64_t> dims) const;
};

/// Bytes that a value takes, those of text and of the elements of sequences too.
int64_t bytes_of_value(const RuntimeValue& v);

/// Called from many threads at once; what it captured from its node is constant.
using ValueFunction = std::function<void(const ValueCall&)>;
/// Reads and checks the attributes, prepares tables. Throws Error.
using MakeValueFunction = ValueFunction (*)(const ValueNode&);

/// The newest form not newer than `opset`; nullptr when there is none.
MakeValueFunction find_value_op(std::string_view domain, std::string_view op, int opset);

struct ValueOpInfo {
  std::string_view domain, op;
  int since;
};
std::vector<ValueOpInfo> value_ops();

} // namespace tbx::runtime
