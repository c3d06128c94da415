// GraphBuilder: nodes of operators that the user's libraries bring along.
#include <algorithm>

#include "base/error.h"
#include "graph/names.h"
#include "importer/to_graph.h"

namespace tbx::importer {
namespace {

using namespace extern_kernels;

extern_kernels::Attribute converted(const std::string& name, const tbx::Attribute& value) {
  return std::visit(
      [&](const auto& v) -> extern_kernels::Attribute {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, float>) {
          return double{v};
        } else if constexpr (std::is_same_v<T, std::vector<float>>) {
          return std::vector<double>(v.begin(), v.end());
        } else if constexpr (std::is_constructible_v<extern_kernels::Attribute, T>) {
          if constexpr (std::is_same_v<T, std::shared_ptr<const Tensor>>)
            if (!v->data && v->dtype == DType::string)
              throw_unsupported("attribute {} is a tensor of strings, which custom operators do not take",
                                shown(name));
          return v;
        } else {
          throw_unsupported("attribute {}: custom operators take numbers, strings, lists of them and tensors",
                            shown(name));
        }
      },
      value);
}

/// Sizes of one input: an unknown one is the negative number of its name.
std::vector<int64_t> sizes_of(const onnx::TensorShapeProto& shape, std::vector<std::string>& names) {
  std::vector<int64_t> sizes;
  for (const auto& dim : shape.dim()) {
    if (dim.has_dim_value()) {
      sizes.push_back(dim.dim_value());
      continue;
    }
    auto known =
        dim.dim_param().empty() ? names.end() : std::find(names.begin(), names.end(), dim.dim_param());
    sizes.push_back(unknown_size(known - names.begin()));
    if (known == names.end()) names.push_back(dim.dim_param());
  }
  return sizes;
}

} // namespace

std::shared_ptr<const CustomOperator> GraphBuilder::find_custom(const Env& env,
                                                                const onnx::NodeProto& node) const {
  if (!options_.custom_operators) return nullptr;
  std::string domain(canonical_domain(node.domain()));
  auto import = env.opsets->find(domain);
  if (import == env.opsets->end()) return nullptr;
  return options_.custom_operators->find(domain, node.op_type(), import->second);
}

std::shared_ptr<const CustomNode> GraphBuilder::custom_node(std::shared_ptr<const CustomOperator> op,
                                                            const Node& node, const onnx::NodeProto& proto) {
  CustomNode::Shape shape{node.name, node.opset, proto.input_size(), proto.output_size(), {}, {}};
  for (ValueId id : node.inputs) shape.inputs_given.push_back(id >= 0);
  for (const auto& [name, value] : node.attributes) shape.attributes.emplace(name, converted(name, value));
  return std::make_shared<const CustomNode>(std::move(op), std::move(shape));
}

/// Types stay open where those of the inputs are: the lowering infers again.
void GraphBuilder::infer_custom(const CustomNode& node, const NodeView& view,
                                std::vector<onnx::TypeProto>& outputs) {
  std::vector<std::string> names; // of the unknown sizes, in order of their numbers
  std::vector<std::vector<int64_t>> sizes(view.inputs.size());
  std::vector<CustomInput> inputs(view.inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!view.inputs[i]) continue;
    const onnx::TypeProto& type = view.inputs[i]->type;
    bool tensor = type.has_tensor_type() && type.tensor_type().elem_type() != onnx::TensorProto::STRING;
    if (is_known(type) && (!tensor || is_complex(static_cast<DType>(type.tensor_type().elem_type()))))
      throw_unsupported(
          "{}: input {} is no tensor of real numbers, and custom operators take no other values",
          node.description(), i);
    if (!is_known(type) || !type.tensor_type().has_shape()) return;
    sizes[i] = sizes_of(type.tensor_type().shape(), names);
    inputs[i] = {static_cast<DType>(type.tensor_type().elem_type()), sizes[i],
                 view.inputs[i]->constant ? view.inputs[i]->constant->data : nullptr};
  }
  std::vector<CustomOutput> inferred = node.infer(inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto& type = *outputs[i].mutable_tensor_type();
    type.set_elem_type(static_cast<int32_t>(inferred[i].dtype));
    type.mutable_shape();
    for (int64_t d : inferred[i].dims) {
      auto* dim = type.mutable_shape()->add_dim();
      for (size_t k = 0; d < 0 && k < names.size(); ++k)
        if (unknown_size(static_cast<int64_t>(k)) == d && !names[k].empty()) dim->set_dim_param(names[k]);
      if (d >= 0) dim->set_dim_value(d);
    }
  }
}

} // namespace tbx::importer
