#include "importer/attributes.h"

#include "base/error.h"
#include "graph/names.h"
#include "importer/tensors.h"

namespace tbx::importer {

using onnx::AttributeProto;

Attribute to_attribute(AttributeProto& p, AttributeTensors& tensors, Symbols& symbols,
                       const ImportOptions& options) {
  const std::string what = "attribute " + shown(p.name());
  auto present = [&](bool there) { TBX_MODEL(there, "{} has no value of its declared type", what); };
  switch (p.type()) {
  case AttributeProto::INT: return p.i();
  case AttributeProto::FLOAT: return p.f();
  case AttributeProto::STRING: return p.s();
  case AttributeProto::INTS: return std::vector<int64_t>(p.ints().begin(), p.ints().end());
  case AttributeProto::FLOATS: return std::vector<float>(p.floats().begin(), p.floats().end());
  case AttributeProto::STRINGS: return std::vector<std::string>(p.strings().begin(), p.strings().end());
  case AttributeProto::TENSOR: present(p.has_t()); return tensors.read(*p.mutable_t(), what);
  case AttributeProto::SPARSE_TENSOR:
    present(p.has_sparse_tensor());
    return tensors.read(*p.mutable_sparse_tensor(), what);
  case AttributeProto::TENSORS: {
    std::vector<std::shared_ptr<const Tensor>> list;
    for (auto& t : *p.mutable_tensors()) list.push_back(tensors.read(t, what));
    return list;
  }
  case AttributeProto::SPARSE_TENSORS: {
    std::vector<std::shared_ptr<const Tensor>> list;
    for (auto& t : *p.mutable_sparse_tensors()) list.push_back(tensors.read(t, what));
    return list;
  }
  case AttributeProto::TYPE_PROTO: {
    present(p.has_tp());
    onnx::TypeProto type = declared_type(p.tp(), options, what);
    name_unknown_dims(type, symbols);
    return to_value_type(type, symbols);
  }
  case AttributeProto::TYPE_PROTOS:
    throw_unsupported("{} is a list of types, which no operator of ONNX has", what);
  default: throw_model_error("{} has no valid type", what);
  }
}

AttributeProto to_proto(const std::string& name, const Attribute& attribute, const DimNamer& dim_name) {
  AttributeProto p;
  p.set_name(name);
  struct Visitor {
    AttributeProto& p;
    const DimNamer& dim_name;
    void operator()(int64_t v) { p.set_type(AttributeProto::INT), p.set_i(v); }
    void operator()(float v) { p.set_type(AttributeProto::FLOAT), p.set_f(v); }
    void operator()(const std::string& v) { p.set_type(AttributeProto::STRING), p.set_s(v); }
    void operator()(const std::shared_ptr<const Tensor>& v) {
      p.set_type(AttributeProto::TENSOR);
      *p.mutable_t() = importer::to_proto(*v);
    }
    void operator()(const std::vector<int64_t>& v) {
      p.set_type(AttributeProto::INTS);
      p.mutable_ints()->Assign(v.begin(), v.end());
    }
    void operator()(const std::vector<float>& v) {
      p.set_type(AttributeProto::FLOATS);
      p.mutable_floats()->Assign(v.begin(), v.end());
    }
    void operator()(const std::vector<std::string>& v) {
      p.set_type(AttributeProto::STRINGS);
      p.mutable_strings()->Assign(v.begin(), v.end());
    }
    void operator()(const std::vector<std::shared_ptr<const Tensor>>& v) {
      p.set_type(AttributeProto::TENSORS);
      for (const auto& t : v) *p.add_tensors() = importer::to_proto(*t);
    }
    void operator()(const ValueType& v) {
      p.set_type(AttributeProto::TYPE_PROTO);
      *p.mutable_tp() = to_type_proto(v, dim_name);
    }
    void operator()(const std::shared_ptr<Graph>&) {}
    void operator()(const std::vector<std::shared_ptr<Graph>>&) {}
  };
  std::visit(Visitor{p, dim_name}, attribute);
  return p;
}

} // namespace tbx::importer
