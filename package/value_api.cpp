#include "package/value_api.h"

#include <cstring>

#include "base/error.h"
#include "runtime/value_session.h"

namespace tbx::package {
namespace {

Tensor checked_tensor(const OnnxValue& v, const std::string& name) {
  TBX_MODEL(dtype_from_number(v.type), "input '{}' has no element type {}", name, v.type);
  Tensor t;
  t.dtype = static_cast<DType>(v.type);
  t.dims = v.dims;
  t.data = static_cast<const std::byte*>(v.data);
  t.owner = v.owner;
  t.strings = v.strings;
  runtime::check_data(name, t);
  return t;
}

OnnxValue public_tensor(Tensor t) {
  if (t.dtype != DType::string && !t.owner) {
    Tensor copy = Tensor::make(t.dtype, t.dims);
    if (copy.bytes() > 0) std::memcpy(copy.mutable_data(), t.data, static_cast<size_t>(copy.bytes()));
    t = std::move(copy);
  }
  OnnxValue v;
  v.kind = OnnxValue::tensor;
  v.type = static_cast<int32_t>(t.dtype);
  v.dims = std::move(t.dims);
  v.data = const_cast<std::byte*>(t.data);
  v.owner = std::const_pointer_cast<void>(t.owner);
  v.strings = std::move(t.strings);
  return v;
}

} // namespace

RuntimeValue to_runtime(const OnnxValue& v, const std::string& name) {
  switch (v.kind) {
  case OnnxValue::none: return {};
  case OnnxValue::tensor: return RuntimeValue(checked_tensor(v, name));
  case OnnxValue::sequence: {
    std::vector<RuntimeValue> elements;
    for (const OnnxValue& e : v.elements) elements.push_back(to_runtime(e, name));
    return RuntimeValue::sequence(std::move(elements));
  }
  case OnnxValue::map: {
    TBX_MODEL(v.elements.size() == 2 && v.elements[0].kind == OnnxValue::tensor &&
                  v.elements[1].kind == OnnxValue::tensor && v.elements[0].dims.size() == 1 &&
                  v.elements[0].dims == v.elements[1].dims,
              "input '{}' is a map without one list of keys and one of as many values", name);
    return RuntimeValue::of_map(checked_tensor(v.elements[0], name), checked_tensor(v.elements[1], name));
  }
  }
  throw_model_error("input '{}' is no value", name);
}

RuntimeValue to_runtime(const TensorView& view, const std::string& name) {
  OnnxValue v{OnnxValue::tensor, view.type, view.dims, view.data, nullptr, nullptr, {}};
  if (view.type == static_cast<int32_t>(DType::string) && view.data) {
    v.strings =
        std::make_shared<std::vector<std::string>>(*static_cast<std::vector<std::string>*>(view.data));
    v.data = nullptr;
  }
  return to_runtime(v, name);
}

OnnxValue to_public(RuntimeValue value) {
  OnnxValue v;
  switch (value.kind) {
  case RuntimeValue::Kind::none: break;
  case RuntimeValue::Kind::tensor: return public_tensor(std::move(value.tensor));
  case RuntimeValue::Kind::sequence:
    v.kind = OnnxValue::sequence;
    for (const RuntimeValue& e : *value.elements) v.elements.push_back(to_public(e));
    break;
  case RuntimeValue::Kind::map:
    v.kind = OnnxValue::map;
    v.elements = {public_tensor(value.map->keys), public_tensor(value.map->values)};
    break;
  }
  return v;
}

} // namespace tbx::package
