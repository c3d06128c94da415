#include "importer/inference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <onnx/checker.h>
#include <onnx/shape_inference/implementation.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"
#include "importer/inference_guards.h"
#include "importer/schemas.h"
#include "importer/tensors.h"
#include "importer/types.h"

namespace tbx::importer {
namespace {

constexpr int64_t kMaxConstantElements = 1 << 16; // larger ones are weights, never shapes
constexpr int64_t kMaxPropagatedElements = 1024;  ///< of one value
constexpr int64_t kMaxGivenElements = 1 << 16;    ///< of all inputs of a node

/// Both of ONNX's contexts share everything but what "input data" means.
class InferenceView final : public onnx::InferenceContext {
public:
  explicit InferenceView(NodeView& node) : node_(node), outputs_(node.proto.output_size()) {}

  const onnx::AttributeProto* getAttribute(const std::string& name) const override {
    auto it = node_.attributes.find(name);
    return it == node_.attributes.end() ? nullptr : it->second;
  }
  size_t getNumInputs() const override { return node_.inputs.size(); }
  const onnx::TypeProto* getInputType(size_t i) const override {
    const ValueFacts* facts = input(i);
    return facts && is_known(facts->type) ? &facts->type : nullptr;
  }
  bool hasInput(size_t i) const override { return i < node_.inputs.size() && node_.inputs[i]; }
  const onnx::TensorProto* getInputData(size_t i) const override {
    ValueFacts* facts = input(i);
    if (!facts || !facts->constant || facts->constant->numel() > kMaxConstantElements) return nullptr;
    if (!facts->constant_proto)
      facts->constant_proto = std::make_unique<onnx::TensorProto>(to_proto(data_for_inference(node_, i)));
    return facts->constant_proto.get();
  }
  const onnx::SparseTensorProto* getInputSparseData(size_t) const override { return nullptr; }
  const onnx::TensorShapeProto* getSymbolicInput(size_t i) const override {
    const ValueFacts* facts = input(i);
    return facts && facts->data ? &*facts->data : nullptr;
  }
  size_t getNumOutputs() const override { return outputs_.size(); }
  onnx::TypeProto* getOutputType(size_t i) override {
    if (i >= outputs_.size()) out_of_range("output", i);
    return &outputs_[i];
  }
  bool hasOutput(size_t i) override {
    return i < outputs_.size() && !node_.proto.output(static_cast<int>(i)).empty();
  }
  onnx::GraphInferencer* getGraphAttributeInferencer(const std::string& name) override {
    return node_.subgraph(node_.owner, name);
  }
  std::string getDisplayName() const override { return node_.proto.op_type(); }

  std::vector<onnx::TypeProto>& outputs() { return outputs_; }

private:
  /// ONNX's functions expect an exception here: they look at the answer without a check.
  [[noreturn]] static void out_of_range(const char* what, size_t i) {
    throw onnx::InferenceError(fmt::format("[ShapeInferenceError] {} {} does not exist", what, i));
  }
  ValueFacts* input(size_t i) const {
    if (i >= node_.inputs.size()) out_of_range("input", i);
    return node_.inputs[i];
  }

  NodeView& node_;
  std::vector<onnx::TypeProto> outputs_;
};

class PropagationView final : public onnx::DataPropagationContext {
public:
  PropagationView(const InferenceView& view, NodeView& node, InferredOutputs& result)
      : view_(view), node_(node), result_(result) {}

  const onnx::AttributeProto* getAttribute(const std::string& name) const override {
    return view_.getAttribute(name);
  }
  size_t getNumInputs() const override { return view_.getNumInputs(); }
  const onnx::TypeProto* getInputType(size_t i) const override { return view_.getInputType(i); }
  size_t getNumOutputs() const override { return result_.types.size(); }
  const onnx::TypeProto* getOutputType(size_t i) const override { return &result_.types.at(i); }
  const onnx::TensorShapeProto* getInputData(size_t i) override {
    ValueFacts* facts = node_.inputs.at(i);
    if (!facts) return nullptr;
    if (!facts->data) facts->data = integers_of(*facts);
    if (!facts->data || (given_ += facts->data->dim_size()) > kMaxGivenElements) return nullptr;
    if (!is_fit_for_propagation(node_, i, *facts->data)) return nullptr;
    return &*facts->data;
  }
  void addOutputData(size_t i, onnx::TensorShapeProto&& data) override {
    // A result may be used for the next one, and so on: each twice as long as the one before.
    if (data.dim_size() <= kMaxPropagatedElements) result_.data.at(i) = std::move(data);
  }

private:
  /// A constant, or as many unknown numbers as the shape of the value says.
  static std::optional<onnx::TensorShapeProto> integers_of(const ValueFacts& facts) {
    onnx::TensorShapeProto result;
    if (facts.constant) {
      const Tensor& t = *facts.constant;
      bool integers = t.dtype == DType::i64 || t.dtype == DType::i32;
      if (!integers || t.dims.size() > 1 || t.numel() > kMaxPropagatedElements) return std::nullopt;
      for (int64_t v : to_ints(t)) result.add_dim()->set_dim_value(v);
      return result;
    }
    if (!facts.type.has_tensor_type() || !facts.type.tensor_type().has_shape()) return std::nullopt;
    const auto& shape = facts.type.tensor_type().shape();
    if (shape.dim_size() != 1 || !shape.dim(0).has_dim_value() ||
        shape.dim(0).dim_value() > kMaxPropagatedElements)
      return std::nullopt;
    for (int64_t i = 0; i < shape.dim(0).dim_value(); ++i) result.add_dim();
    return result;
  }

  const InferenceView& view_;
  NodeView& node_;
  InferredOutputs& result_;
  int64_t given_ = 0;
};

/// ONNX's inference functions follow pointers to the types of inputs that must be there.
bool inputs_known(const NodeView& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const auto& formal = node.schema->inputs();
    bool variadic =
        !formal.empty() && i + 1 >= formal.size() && formal.back().GetOption() == onnx::OpSchema::Variadic;
    if (node.inputs[i] ? !is_known(node.inputs[i]->type) : variadic) return false;
  }
  return true;
}

bool inputs_static(const NodeView& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const ValueFacts* f) { return !f || is_static(f->type); });
}

/// "[TypeInferenceError] text\n..." -> "text".
std::string message_of(const std::exception& e) {
  std::string text = e.what();
  if (text.starts_with('['))
    if (size_t end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
  return text;
}

/// What onnx says of a type that an operator does not take, "A typestr: T, has unsupported type:
/// tensor(int8)", in words and with those that it takes. Another text as it is.
std::string told_of_type(const onnx::OpSchema& schema, const std::string& text) {
  constexpr std::string_view kGiven = ", has unsupported type: ";
  const size_t name_end = text.find(" typestr: "), given = text.find(kGiven);
  if (name_end == std::string::npos || given == std::string::npos) return text;
  auto of = [&](const char* what,
                const std::vector<onnx::OpSchema::FormalParameter>& parameters) -> std::string {
    for (const onnx::OpSchema::FormalParameter& p : parameters) {
      if (p.GetName() != text.substr(0, name_end)) continue;
      std::set<std::string> allowed;
      for (const auto* type : p.GetTypes()) allowed.insert(*type);
      return fmt::format("{} '{}' is {}, expected {}", what, p.GetName(), text.substr(given + kGiven.size()),
                         fmt::join(allowed, ", "));
    }
    return {};
  };
  if (std::string input = of("input", schema.inputs()); !input.empty()) return input;
  const std::string output = of("output", schema.outputs());
  return output.empty() ? text : output;
}

void run_inference(NodeView& node, InferenceView& view, bool strict) {
  check_before_inference(node);
  try {
    if (node.schema->has_type_and_shape_inference_function()) {
      node.schema->GetTypeAndShapeInferenceFunction()(view);
    } else if (node.schema->HasFunction()) {
      onnx::shape_inference::DataValueMap values;
      onnx::ShapeInferenceOptions options;
      onnx::shape_inference::InferShapeForFunctionNode(*node.schema->GetFunction(), &onnx_schemas(), view,
                                                       options, {}, nullptr, &values);
    }
  } catch (const onnx::InferenceError& e) {
    bool is_type_error = std::string_view(e.what()).starts_with("[TypeInferenceError]");
    if (is_type_error || (strict && inputs_static(node))) throw_model_error("{}", message_of(e));
    for (onnx::TypeProto& type : view.outputs())
      if (type.has_tensor_type()) type.mutable_tensor_type()->clear_shape();
  }
}

/// A sequence is one whatever its elements are, of which nothing may be known: nodes on values make it.
void tell_sequences(const NodeView& node, std::vector<onnx::TypeProto>& types) {
  const auto& formal = node.schema->outputs();
  for (size_t i = 0; i < std::min(types.size(), formal.size()); ++i) {
    const auto& allowed = formal[i].GetTypes();
    if (types[i].value_case() == onnx::TypeProto::VALUE_NOT_SET && !allowed.empty() &&
        std::all_of(allowed.begin(), allowed.end(),
                    [](const auto* type) { return type->starts_with("seq("); }))
      types[i].mutable_sequence_type();
  }
}

} // namespace

InferredOutputs infer_outputs(NodeView& node, bool strict, bool check_types) {
  InferredOutputs result;
  result.types.resize(node.proto.output_size());
  result.data.resize(node.proto.output_size());
  if (!node.schema) return result;
  InferenceView view(node);
  bool known = inputs_known(node);
  try {
    if (known) run_inference(node, view, strict);
    correct_after_inference(node, view.outputs());
    if (check_types && !node.schema->deprecated()) node.schema->CheckInputOutputType(view);
    result.types = std::move(view.outputs());
    tell_sequences(node, result.types);
    if (known && node.schema->has_data_propagation_function()) {
      PropagationView propagation(view, node, result);
      try {
        node.schema->GetDataPropagationFunction()(propagation);
      } catch (const onnx::InferenceError&) { // the value stays unknown
      }
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw_model_error("{}", told_of_type(*node.schema, message_of(e)));
  }
  return result;
}

} // namespace tbx::importer
