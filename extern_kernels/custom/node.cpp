// A node of a custom operator: its attributes as C data, and inference of its outputs.
#include <algorithm>

#include "extern_kernels/custom/custom_impl.h"

namespace tbx::extern_kernels {
namespace {

void check_counts(const CustomOperator& op, const CustomNode::Shape& shape) {
  const TbxOperator& d = op.descriptor();
  auto fits = [](int n, int32_t min, int32_t max) { return n >= min && (max == TBX_VARIADIC || n <= max); };
  auto range = [](int32_t min, int32_t max) {
    return max == TBX_VARIADIC ? fmt::format("{} or more", min)
           : min == max        ? fmt::format("{}", min)
                               : fmt::format("{} to {}", min, max);
  };
  TBX_MODEL(fits(shape.num_inputs, d.min_inputs, d.max_inputs), "{} takes {} inputs, the node has {}",
            op.description(), range(d.min_inputs, d.max_inputs), shape.num_inputs);
  TBX_MODEL(fits(shape.num_outputs, d.min_outputs, d.max_outputs), "{} gives {} outputs, the node wants {}",
            op.description(), range(d.min_outputs, d.max_outputs), shape.num_outputs);
  for (int i = 0; i < std::min(d.min_inputs, 64); ++i)
    TBX_MODEL(shape.inputs_given[i] || (d.optional_inputs >> i & 1) != 0, "{}: input {} is left out",
              op.description(), i);
}

TbxTensor c_tensor(DType dtype, std::span<const int64_t> dims, const void* data) {
  return {static_cast<int32_t>(dtype), static_cast<int32_t>(dims.size()), dims.data(),
          const_cast<void*>(data)};
}

} // namespace

CustomNode::CustomNode(std::shared_ptr<const CustomOperator> op, Shape shape) {
  check_counts(*op, shape);
  auto impl = std::make_unique<Impl>();
  impl->op = std::move(op);
  impl->shape = std::move(shape);
  const auto& given = impl->shape.attributes;
  impl->tensors.reserve(given.size()); // pointed at
  for (const auto& [name, value] : given) {
    TbxAttribute a{};
    a.name = name.c_str();
    a.count = 1;
    auto as_string = [](const std::string& s) { return TbxString{s.c_str(), s.size()}; };
    if (const auto* i = std::get_if<int64_t>(&value)) {
      a.kind = TBX_ATTRIBUTE_INT;
      a.i = *i;
    } else if (const auto* f = std::get_if<double>(&value)) {
      a.kind = TBX_ATTRIBUTE_FLOAT;
      a.f = static_cast<float>(*f);
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      a.kind = TBX_ATTRIBUTE_STRING;
      a.s = as_string(*s);
    } else if (const auto* is = std::get_if<std::vector<int64_t>>(&value)) {
      a.kind = TBX_ATTRIBUTE_INTS;
      a.ints = is->data();
      a.count = is->size();
    } else if (const auto* fs = std::get_if<std::vector<double>>(&value)) {
      a.kind = TBX_ATTRIBUTE_FLOATS;
      a.floats = impl->floats.emplace_back(fs->begin(), fs->end()).data();
      a.count = fs->size();
    } else if (const auto* ss = std::get_if<std::vector<std::string>>(&value)) {
      auto& list = impl->strings.emplace_back();
      for (const std::string& text : *ss) list.push_back(as_string(text));
      a.kind = TBX_ATTRIBUTE_STRINGS;
      a.strings = list.data();
      a.count = list.size();
    } else {
      const Tensor& t = *std::get<std::shared_ptr<const Tensor>>(value);
      a.kind = TBX_ATTRIBUTE_TENSOR;
      a.tensor = &impl->tensors.emplace_back(c_tensor(t.dtype, t.dims, t.data));
    }
    impl->attributes.push_back(a);
  }
  TbxNode& node = impl->node;
  node.size = sizeof node;
  node.opset = impl->shape.opset;
  node.name = impl->shape.name.c_str();
  node.op_type = impl->op->name().c_str();
  node.domain = impl->op->domain().c_str();
  node.num_inputs = impl->shape.num_inputs;
  node.num_outputs = impl->shape.num_outputs;
  node.num_attributes = impl->attributes.size();
  node.attributes = impl->attributes.data();
  impl_ = std::move(impl);
}

CustomNode::~CustomNode() = default;
bool CustomNode::is_function() const { return !(impl_->op->descriptor().flags & TBX_NOT_A_FUNCTION); }
std::string CustomNode::description() const { return impl_->op->description(); }

std::vector<CustomOutput> CustomNode::infer(std::span<const CustomInput> inputs) const {
  const CustomOperator& op = *impl_->op;
  std::vector<TbxTensor> tensors;
  for (const CustomInput& in : inputs) tensors.push_back(c_tensor(in.dtype, in.dims, in.data));
  std::vector<TbxShape> shapes(static_cast<size_t>(impl_->shape.num_outputs));
  if (op.descriptor().infer) {
    TbxInferContext ctx{};
    ctx.size = sizeof ctx;
    ctx.op = &op.descriptor();
    ctx.node = &impl_->node;
    ctx.num_inputs = static_cast<int32_t>(tensors.size());
    ctx.num_outputs = static_cast<int32_t>(shapes.size());
    ctx.inputs = tensors.data();
    ctx.outputs = shapes.data();
    call_operator(op, "infer", ctx, op.descriptor().infer);
  } else {
    TBX_MODEL(tensors[0].rank <= TBX_MAX_RANK, "{}: input 0 has rank {}; the limit is {}", op.description(),
              tensors[0].rank, TBX_MAX_RANK);
    for (TbxShape& s : shapes) tbx_set_like(&s, &tensors[0]);
  }
  std::vector<CustomOutput> outputs;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const TbxShape& s = shapes[i];
    bool numeric = s.dtype > 0 && s.dtype <= TBX_FLOAT6E3M2 && size_of(static_cast<DType>(s.dtype)) > 0 &&
                   !is_complex(static_cast<DType>(s.dtype));
    if (!numeric)
      throw_backend_error("{}: infer gives output {} the element type {}", op.description(), i, s.dtype);
    if (s.rank < 0 || s.rank > TBX_MAX_RANK)
      throw_backend_error("{}: infer gives output {} the rank {}", op.description(), i, s.rank);
    CustomOutput out{static_cast<DType>(s.dtype), {s.dims, s.dims + s.rank}};
    // Whatever was calculated with an unknown size is not known.
    for (int64_t& d : out.dims) {
      if (d >= 0) continue;
      bool known = std::any_of(inputs.begin(), inputs.end(), [&](const CustomInput& in) {
        return std::find(in.dims.begin(), in.dims.end(), d) != in.dims.end();
      });
      if (!known) d = kUnknownSize;
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

} // namespace tbx::extern_kernels
