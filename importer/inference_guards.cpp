#include "importer/inference_guards.h"

#include <algorithm>

#include "base/error.h"
#include "graph/names.h"

namespace tbx::importer {
namespace {

constexpr int64_t kMaxAxis = 1 << 30; // ONNX casts axes to int
constexpr int64_t kMaxRank = 1024;    // what a list of dimensions may have

/// An input whose length is the rank of the output: ONNX makes one dimension for each element.
struct RankInput {
  const char* op;
  size_t input;
};
constexpr RankInput kRankInputs[] = {{"Expand", 1}, {"Reshape", 1}, {"ConstantOfShape", 0}};

const onnx::AttributeProto* attribute(const NodeView& node, const char* name) {
  auto it = node.attributes.find(name);
  return it == node.attributes.end() ? nullptr : it->second;
}

/// Anything but letters, commas, "..." once per term and "->" makes ONNX's parser run in a circle.
void check_equation(const std::string& text) {
  std::string equation;
  for (char c : text)
    if (c != ' ') equation += c;
  auto is_term = [](std::string term) {
    if (size_t at = term.find("..."); at != std::string::npos) term.erase(at, 3);
    return std::all_of(term.begin(), term.end(), [](char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; });
  };
  size_t arrow = equation.find("->");
  bool good = arrow == std::string::npos || is_term(equation.substr(arrow + 2));
  std::string left = equation.substr(0, arrow);
  for (size_t start = 0, comma = 0; good && comma != std::string::npos; start = comma + 1) {
    comma = left.find(',', start);
    good = is_term(left.substr(start, comma == std::string::npos ? comma : comma - start));
  }
  TBX_MODEL(good, "{} is not an Einsum equation", shown(text));
}

bool names_axes(const std::string& attribute) {
  return attribute.find("axis") != std::string::npos || attribute.find("axes") != std::string::npos ||
         attribute == "perm";
}

/// Before version 22 ONNX's inference counts windows of ceil_mode that would start behind the input, which no
/// runtime computes (Window::output_size).
void leave_out_late_windows(const NodeView& node, onnx::TypeProto& output) {
  const auto* ceil = attribute(node, "ceil_mode");
  const auto& x = node.inputs[0]->type.tensor_type().shape();
  if (!ceil || ceil->i() == 0 || output.tensor_type().shape().dim_size() != x.dim_size()) return;
  const auto *strides = attribute(node, "strides"), *pads = attribute(node, "pads"),
             *auto_pad = attribute(node, "auto_pad");
  const bool padded = pads && (!auto_pad || auto_pad->s() == "NOTSET");
  for (int k = 0; k + 2 < x.dim_size(); ++k) {
    auto& out = *output.mutable_tensor_type()->mutable_shape()->mutable_dim(k + 2);
    if (!x.dim(k + 2).has_dim_value() || !out.has_dim_value() || out.dim_value() < 1) continue;
    const int64_t stride = strides && k < strides->ints_size() ? strides->ints(k) : 1,
                  begin = padded && k < pads->ints_size() ? pads->ints(k) : 0;
    int64_t start, end;
    if (__builtin_mul_overflow(out.dim_value() - 1, stride, &start) ||
        __builtin_add_overflow(x.dim(k + 2).dim_value(), begin, &end))
      continue;
    if (start >= end) out.clear_value(); // an exported file must not contradict that inference, either
  }
}

} // namespace

void check_before_inference(const NodeView& node) {
  const std::string& op = node.schema->Name();
  for (const auto& [name, p] : node.attributes) {
    if (!names_axes(name)) continue;
    auto fits = [](int64_t v) { return v >= -kMaxAxis && v <= kMaxAxis; };
    TBX_MODEL(fits(p->i()) && std::all_of(p->ints().begin(), p->ints().end(), fits),
              "attribute {} holds a number that no axis has", shown(name));
  }
  for (const RankInput& r : kRankInputs) {
    if (op != r.op || r.input >= node.inputs.size() || !node.inputs[r.input]) continue;
    const auto& type = node.inputs[r.input]->type;
    if (!type.has_tensor_type() || type.tensor_type().shape().dim_size() != 1) continue;
    int64_t rank = type.tensor_type().shape().dim(0).dim_value();
    TBX_MODEL(rank <= kMaxRank, "the output would have rank {}; the limit is {}", rank, kMaxRank);
  }
  if (const auto* dims = attribute(node, "batch_dims"))
    TBX_MODEL(dims->i() >= 0 && dims->i() <= kMaxRank, "batch_dims is {}", dims->i());
  if (op == "Einsum")
    if (const auto* equation = attribute(node, "equation")) check_equation(equation->s());
  if (op == "Split")
    if (const auto* count = attribute(node, "num_outputs"))
      TBX_MODEL(count->i() == node.proto.output_size(), "num_outputs is {}, but the node has {} outputs",
                count->i(), node.proto.output_size());
}

Tensor data_for_inference(const NodeView& node, size_t i) {
  const Tensor& t = *node.inputs[i]->constant;
  if (node.schema->Name() != "Pad" || t.dtype != DType::i32) return t; // axes may be int32, too
  std::vector<int64_t> values = to_ints(t);
  Tensor wide = Tensor::make(DType::i64, t.dims);
  std::copy(values.begin(), values.end(), wide.as_mutable<int64_t>().begin());
  return wide;
}

bool is_fit_for_propagation(const NodeView& node, size_t i, const onnx::TensorShapeProto& value) {
  if (node.schema->Name() != "Slice" || i != 4) return true;
  // Steps are added to an int: one of 2^32 goes nowhere for ever, others leave the list.
  return std::all_of(value.dim().begin(), value.dim().end(), [](const auto& step) {
    return step.dim_value() >= -kMaxAxis && step.dim_value() <= kMaxAxis;
  });
}

void correct_after_inference(const NodeView& node, std::vector<onnx::TypeProto>& outputs) {
  if (!node.schema->domain().empty() || outputs.empty() || node.inputs.empty() || !node.inputs[0]) return;
  const std::string& op = node.schema->Name();
  if (op == "MeanVarianceNormalization" || op == "GroupNormalization") {
    // ONNX gives no shape: it infers through a body in which defaults of attributes are missing, or not at
    // all.
    const onnx::TypeProto& x = node.inputs[0]->type;
    if (x.has_tensor_type() && !outputs[0].tensor_type().has_shape()) outputs[0] = x;
  }
  if (op == "MaxPool" || op == "AveragePool" || op == "LpPool")
    for (onnx::TypeProto& output : outputs) leave_out_late_windows(node, output);
  if (op != "RMSNormalization") return;
  if (node.inputs.size() < 2 || !node.inputs[1] || !node.inputs[1]->type.has_tensor_type()) return;
  // The result is of the type of the scale; ONNX gives it that of the data.
  outputs[0].mutable_tensor_type()->set_elem_type(node.inputs[1]->type.tensor_type().elem_type());
}

} // namespace tbx::importer
