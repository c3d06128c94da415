#include "importer/types.h"

#include <onnx/defs/data_type_utils.h>

#include <algorithm>

#include "base/error.h"
#include "graph/names.h"
#include "importer/tensors.h"

namespace tbx::importer {
namespace {

constexpr int kMaxDims = 1024; // of a declared shape; ONNX's inference stops at the same rank

ValueType of_tensor(const auto& tensor, ValueType::Kind kind, Symbols& symbols) {
  ValueType t;
  t.kind = kind;
  t.dtype = static_cast<DType>(tensor.elem_type());
  if (tensor.has_shape()) {
    t.shape.emplace();
    for (const auto& dim : tensor.shape().dim())
      t.shape->push_back(dim.has_dim_value() ? ir::SymInt(dim.dim_value()) : symbols.of(dim.dim_param()));
  }
  return t;
}

void fill_tensor(auto& tensor, const ValueType& type, const DimNamer& dim_name) {
  tensor.set_elem_type(static_cast<int32_t>(type.dtype));
  if (!type.shape) return;
  auto* shape = tensor.mutable_shape();
  for (ir::SymInt d : *type.shape) {
    auto* dim = shape->add_dim();
    if (d.is_constant())
      dim->set_dim_value(d.constant());
    else if (std::string name = dim_name(d); !name.empty())
      dim->set_dim_param(name);
  }
}

std::shared_ptr<const ValueType> shared(ValueType type) {
  return std::make_shared<const ValueType>(std::move(type));
}

void name_dims(auto& tensor, Symbols& symbols) {
  if (!tensor.has_shape()) return;
  for (auto& dim : *tensor.mutable_shape()->mutable_dim())
    if (!dim.has_dim_value() && dim.dim_param().empty()) dim.set_dim_param(symbols.fresh());
}

void check_tensor(auto& tensor, const ImportOptions& options, const std::string& what) {
  if (tensor.elem_type() != 0) to_dtype(tensor.elem_type(), what);
  if (!tensor.has_shape()) return;
  TBX_MODEL(tensor.shape().dim_size() <= kMaxDims, "{} has rank {}; the limit is {}", what,
            tensor.shape().dim_size(), kMaxDims);
  for (auto& dim : *tensor.mutable_shape()->mutable_dim()) {
    if (options.all_dims_dynamic && dim.has_dim_value()) {
      dim.clear_value();
    } else if (dim.has_dim_param()) {
      const std::string name = dim.dim_param();
      auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
      if (auto it = options.dim_overrides.find(name); it != options.dim_overrides.end())
        dim.set_dim_value(it->second);
      else if (name.empty() || name == "?" || // how exporters write that they do not know a size
               std::any_of(name.begin(), name.end(), is_control))
        dim.clear_value();
    } else if (dim.has_dim_value() && dim.dim_value() < 0) {
      dim.clear_value();
    }
  }
}

bool complete_tensor(auto& inferred, const auto& declared) {
  if (inferred.elem_type() == 0) inferred.set_elem_type(declared.elem_type());
  if (declared.elem_type() != 0 && inferred.elem_type() != declared.elem_type()) return false;
  if (!declared.has_shape()) return true;
  if (!inferred.has_shape()) {
    *inferred.mutable_shape() = declared.shape();
    for (auto& dim : *inferred.mutable_shape()->mutable_dim())
      if (dim.has_dim_param()) dim.clear_value();
    return true;
  }
  if (inferred.shape().dim_size() != declared.shape().dim_size()) return true;
  for (int i = 0; i < declared.shape().dim_size(); ++i) {
    auto& dim = *inferred.mutable_shape()->mutable_dim(i);
    const auto& other = declared.shape().dim(i);
    if (!dim.has_dim_value() && !dim.has_dim_param() && other.has_dim_value())
      dim.set_dim_value(other.dim_value());
  }
  return true;
}

/// An empty type of the kind of `declared`.
void start_kind(onnx::TypeProto& type, const onnx::TypeProto& declared) {
  switch (declared.value_case()) {
  case onnx::TypeProto::kTensorType: type.mutable_tensor_type(); break;
  case onnx::TypeProto::kSparseTensorType: type.mutable_sparse_tensor_type(); break;
  case onnx::TypeProto::kSequenceType: type.mutable_sequence_type(); break;
  case onnx::TypeProto::kOptionalType: type.mutable_optional_type(); break;
  case onnx::TypeProto::kMapType:
    type.mutable_map_type()->set_key_type(declared.map_type().key_type());
    break;
  default: type = declared; break;
  }
}

} // namespace

ir::SymInt Symbols::of_input(const std::string& dim_param) {
  auto [it, added] = inputs_.try_emplace(dim_param);
  if (added) it->second = context_.symbol(dim_param);
  return it->second;
}

ir::SymInt Symbols::of(const std::string& dim_param) {
  if (auto it = inputs_.find(dim_param); it != inputs_.end()) return it->second;
  auto [it, added] = internal_.try_emplace(dim_param);
  if (added) it->second = context_.unbacked_symbol("u");
  return it->second;
}

std::string Symbols::fresh(const std::string& hint) {
  std::string name = "\x1f" + std::to_string(internal_.size());
  internal_.emplace(name, context_.unbacked_symbol(hint));
  return name;
}

std::string Symbols::name_for(ir::SymInt e) {
  auto [it, added] = names_.try_emplace(e);
  if (added) {
    it->second = "\x1f" + std::to_string(internal_.size());
    internal_.emplace(it->second, e);
  }
  return it->second;
}

ValueType to_value_type(const onnx::TypeProto& type, Symbols& symbols) {
  switch (type.value_case()) {
  case onnx::TypeProto::kTensorType: return of_tensor(type.tensor_type(), ValueType::tensor, symbols);
  case onnx::TypeProto::kSparseTensorType:
    return of_tensor(type.sparse_tensor_type(), ValueType::sparse_tensor, symbols);
  case onnx::TypeProto::kSequenceType:
    return {.kind = ValueType::sequence,
            .element = shared(to_value_type(type.sequence_type().elem_type(), symbols))};
  case onnx::TypeProto::kOptionalType:
    return {.kind = ValueType::optional,
            .element = shared(to_value_type(type.optional_type().elem_type(), symbols))};
  case onnx::TypeProto::kMapType:
    return {.kind = ValueType::map,
            .dtype = static_cast<DType>(type.map_type().key_type()),
            .element = shared(to_value_type(type.map_type().value_type(), symbols))};
  default: return {};
  }
}

onnx::TypeProto to_type_proto(const ValueType& type, const DimNamer& dim_name) {
  onnx::TypeProto p;
  auto element = [&] { return type.element ? to_type_proto(*type.element, dim_name) : onnx::TypeProto(); };
  switch (type.kind) {
  case ValueType::tensor: fill_tensor(*p.mutable_tensor_type(), type, dim_name); break;
  case ValueType::sparse_tensor: fill_tensor(*p.mutable_sparse_tensor_type(), type, dim_name); break;
  case ValueType::sequence: *p.mutable_sequence_type()->mutable_elem_type() = element(); break;
  case ValueType::optional: *p.mutable_optional_type()->mutable_elem_type() = element(); break;
  case ValueType::map:
    p.mutable_map_type()->set_key_type(static_cast<int32_t>(type.dtype));
    *p.mutable_map_type()->mutable_value_type() = element();
    break;
  case ValueType::unknown: break;
  }
  return p;
}

void name_unknown_dims(onnx::TypeProto& type, Symbols& symbols) {
  switch (type.value_case()) {
  case onnx::TypeProto::kTensorType: name_dims(*type.mutable_tensor_type(), symbols); break;
  case onnx::TypeProto::kSparseTensorType: name_dims(*type.mutable_sparse_tensor_type(), symbols); break;
  case onnx::TypeProto::kSequenceType:
    name_unknown_dims(*type.mutable_sequence_type()->mutable_elem_type(), symbols);
    break;
  case onnx::TypeProto::kOptionalType:
    name_unknown_dims(*type.mutable_optional_type()->mutable_elem_type(), symbols);
    break;
  case onnx::TypeProto::kMapType:
    name_unknown_dims(*type.mutable_map_type()->mutable_value_type(), symbols);
    break;
  default: break;
  }
}

onnx::TypeProto declared_type(const onnx::TypeProto& file_type, const ImportOptions& options,
                              const std::string& what) {
  onnx::TypeProto root = file_type;
  for (onnx::TypeProto* type = &root; type;) {
    switch (type->value_case()) {
    case onnx::TypeProto::kTensorType: check_tensor(*type->mutable_tensor_type(), options, what); return root;
    case onnx::TypeProto::kSparseTensorType:
      check_tensor(*type->mutable_sparse_tensor_type(), options, what);
      return root;
    case onnx::TypeProto::kSequenceType: type = type->mutable_sequence_type()->mutable_elem_type(); break;
    case onnx::TypeProto::kOptionalType: type = type->mutable_optional_type()->mutable_elem_type(); break;
    case onnx::TypeProto::kMapType:
      to_dtype(type->map_type().key_type(), what);
      type = type->mutable_map_type()->mutable_value_type();
      break;
    default: return root;
    }
  }
  return root;
}

bool complete(onnx::TypeProto& inferred, const onnx::TypeProto& declared) {
  if (declared.value_case() == onnx::TypeProto::VALUE_NOT_SET) return true;
  if (inferred.value_case() == onnx::TypeProto::VALUE_NOT_SET) start_kind(inferred, declared);
  if (inferred.value_case() != declared.value_case()) return false;
  switch (inferred.value_case()) {
  case onnx::TypeProto::kTensorType:
    return complete_tensor(*inferred.mutable_tensor_type(), declared.tensor_type());
  case onnx::TypeProto::kSparseTensorType:
    return complete_tensor(*inferred.mutable_sparse_tensor_type(), declared.sparse_tensor_type());
  case onnx::TypeProto::kSequenceType:
    return complete(*inferred.mutable_sequence_type()->mutable_elem_type(),
                    declared.sequence_type().elem_type());
  case onnx::TypeProto::kOptionalType:
    return complete(*inferred.mutable_optional_type()->mutable_elem_type(),
                    declared.optional_type().elem_type());
  case onnx::TypeProto::kMapType:
    return inferred.map_type().key_type() == declared.map_type().key_type() &&
           complete(*inferred.mutable_map_type()->mutable_value_type(), declared.map_type().value_type());
  default: return true;
  }
}

Error declared_otherwise(const std::string& output, const onnx::TypeProto& declared,
                         const onnx::TypeProto& made) {
  auto text = [](const onnx::TypeProto& type) { return *onnx::Utils::DataTypeUtils::ToType(type); };
  return Error(ErrorKind::model, fmt::format("output {} is declared as {}, but it is {}", shown(output),
                                             text(declared), text(made)));
}

bool is_known(const onnx::TypeProto& type) {
  switch (type.value_case()) {
  case onnx::TypeProto::kTensorType: return type.tensor_type().elem_type() != 0;
  case onnx::TypeProto::kSparseTensorType: return type.sparse_tensor_type().elem_type() != 0;
  case onnx::TypeProto::kSequenceType: return is_known(type.sequence_type().elem_type());
  case onnx::TypeProto::kOptionalType: return is_known(type.optional_type().elem_type());
  case onnx::TypeProto::kMapType: return is_known(type.map_type().value_type());
  default: return false;
  }
}

bool is_static(const onnx::TypeProto& type) {
  if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return false;
  const auto& dims = type.tensor_type().shape().dim();
  return std::all_of(dims.begin(), dims.end(), [](const auto& d) { return d.has_dim_value(); });
}

onnx::TypeProto tensor_type(const Tensor& tensor) {
  onnx::TypeProto type;
  type.mutable_tensor_type()->set_elem_type(static_cast<int32_t>(tensor.dtype));
  auto* shape = type.mutable_tensor_type()->mutable_shape();
  for (int64_t d : tensor.dims) shape->add_dim()->set_dim_value(d);
  return type;
}

} // namespace tbx::importer
