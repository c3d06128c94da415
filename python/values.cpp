#include "python/values.h"

#include <map>

namespace nb = nanobind;

namespace tbx::python {

namespace {

/// Bytes of one element in memory.
int64_t width_of(int32_t type) {
  static const std::map<int32_t, int64_t> widths = {{1, 4},  {2, 1},  {3, 1},  {4, 2},   {5, 2},
                                                    {6, 4},  {7, 8},  {9, 1},  {10, 2},  {11, 8},
                                                    {12, 4}, {13, 8}, {14, 8}, {15, 16}, {16, 2}};
  auto it = widths.find(type);
  return it == widths.end() ? 1 : it->second;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* out = nb::inst_ptr<Output>(self);
  int64_t bytes = width_of(out->tensor.type);
  for (int64_t d : out->tensor.dims) bytes *= d;
  static char nothing;
  return PyBuffer_FillInfo(view, self, bytes ? out->tensor.data : &nothing, bytes, 0, flags);
}

PyType_Slot output_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

/// The elements of a list as UTF-8: str, bytes, or what str() makes of them.
std::vector<std::string> strings_of(nb::handle list) {
  std::vector<std::string> out;
  out.reserve(nb::len(list));
  for (nb::handle item : nb::cast<nb::list>(list)) {
    nb::object text = nb::borrow(item);
    if (PyBytes_Check(item.ptr())) // checked: what comes out of a model is text again
      text = nb::steal(PyUnicode_DecodeUTF8(PyBytes_AsString(item.ptr()), PyBytes_Size(item.ptr()), nullptr));
    else if (!PyUnicode_Check(item.ptr()))
      text = nb::steal(PyObject_Str(item.ptr()));
    Py_ssize_t size = 0;
    const char* data = text.is_valid() ? PyUnicode_AsUTF8AndSize(text.ptr(), &size) : nullptr;
    if (!data) throw nb::python_error();
    out.emplace_back(data, static_cast<size_t>(size));
  }
  return out;
}

using Objects = std::vector<nb::object>;

/// The elements of a tensor as what Python has for them; nothing for types that Python has nothing for.
std::optional<Objects> objects_of(const OnnxValue& v) {
  Objects out;
  auto all = [&](const auto& values) {
    for (const auto& value : values) out.push_back(nb::cast(value));
    return std::move(out);
  };
  switch (v.type) {
  case 1: return all(v.values<float>());
  case 6: return all(v.values<int32_t>());
  case 7: return all(v.values<int64_t>());
  case 8: return all(*v.strings);
  case 11: return all(v.values<double>());
  default: return std::nullopt;
  }
}

} // namespace

void bind_output(nb::module_& m) { nb::class_<Output>(m, "Output", nb::type_slots(output_slots)); }

void check_size(const HeldBuffer& memory, int32_t type, const std::vector<int64_t>& dims) {
  try {
    detail::numel_within(dims, memory.bytes() / static_cast<size_t>(width_of(type)));
  } catch (const Exception& e) {
    raise(e.failure);
  }
}

BoundInputs bind(const nb::list& given) {
  BoundInputs bound;
  for (nb::handle item : given) {
    auto t = nb::cast<nb::tuple>(item);
    TensorView view;
    view.type = nb::cast<int32_t>(t[1]);
    view.dims = nb::cast<std::vector<int64_t>>(t[2]);
    if (view.type == 8) {
      bound.strings.push_back(std::make_unique<std::vector<std::string>>(strings_of(t[3])));
      view.data = bound.strings.back().get();
    } else if (nb::isinstance<DeviceTensor>(t[3])) {
      const auto& there = nb::cast<const DeviceTensor&>(t[3]).tensor;
      view.data = there.data;
      view.device = there.device;
    } else {
      bound.held.emplace_back(t[3], false);
      check_size(bound.held.back(), view.type, view.dims);
      view.data = bound.held.back().data();
    }
    bound.inputs.emplace_back(nb::cast<std::string>(t[0]), view);
  }
  return bound;
}

std::vector<TensorView> views_of(const nb::list& into, std::vector<HeldBuffer>& held) {
  std::vector<TensorView> views;
  for (nb::handle item : into) {
    TensorView& view = views.emplace_back();
    if (item.is_none()) continue;         // the session allocates
    if (nb::isinstance<nb::int_>(item)) { // on this GPU
      view.device = nb::cast<int32_t>(item);
      continue;
    }
    if (nb::isinstance<DeviceTensor>(item)) {
      const auto& there = nb::cast<const DeviceTensor&>(item).tensor;
      view = {there.data, there.type, there.dims, there.device};
      continue;
    }
    auto t = nb::cast<nb::tuple>(item);
    held.emplace_back(t[2], true);
    view = {held.back().data(), nb::cast<int32_t>(t[0]), nb::cast<std::vector<int64_t>>(t[1])};
    check_size(held.back(), view.type, view.dims);
  }
  return views;
}

nb::list outputs_to_python(std::vector<OutputTensor> outputs) {
  nb::list result;
  for (OutputTensor& o : outputs) {
    nb::object payload = o.strings           ? nb::cast(*o.strings)
                         : o.device != kHost ? nb::cast(DeviceTensor{o, nullptr})
                                             : nb::cast(Output{o});
    result.append(nb::make_tuple(o.name, o.type, nb::cast(o.dims), payload));
  }
  return result;
}

OnnxValue value_of(nb::handle item, std::vector<HeldBuffer>& held) {
  OnnxValue v;
  if (item.is_none()) return v;
  auto t = nb::cast<nb::tuple>(item);
  auto kind = nb::cast<std::string>(t[0]);
  if (kind == "sequence") {
    v.kind = OnnxValue::sequence;
    for (nb::handle e : nb::cast<nb::list>(t[1])) v.elements.push_back(value_of(e, held));
    return v;
  }
  if (kind == "map") {
    v.kind = OnnxValue::map;
    v.elements = {value_of(t[1], held), value_of(t[2], held)};
    return v;
  }
  v.kind = OnnxValue::tensor;
  v.type = nb::cast<int32_t>(t[1]);
  v.dims = nb::cast<std::vector<int64_t>>(t[2]);
  if (v.type == 8) {
    v.strings = std::make_shared<std::vector<std::string>>(strings_of(t[3]));
  } else {
    held.emplace_back(t[3], false);
    check_size(held.back(), v.type, v.dims);
    v.data = held.back().data();
  }
  return v;
}

/// A dict; where Python has nothing for an element type, ("map", keys, values).
static nb::object map_to_python(const OnnxValue& keys, const OnnxValue& values, SharedKeys& shared) {
  const void* of = keys.strings ? static_cast<const void*>(keys.strings.get()) : keys.data;
  if (of != shared.of || !shared.objects) shared = {of, objects_of(keys)};
  std::optional<Objects> elements = objects_of(values);
  if (!shared.objects || !elements || elements->size() != shared.objects->size())
    return nb::make_tuple("map", value_to_python(keys, shared), value_to_python(values, shared));
  nb::dict result;
  for (size_t i = 0; i < elements->size(); ++i) result[(*shared.objects)[i]] = (*elements)[i];
  return result;
}

nb::object value_to_python(const OnnxValue& v, SharedKeys& shared) {
  switch (v.kind) {
  case OnnxValue::none: return nb::none();
  case OnnxValue::sequence: {
    nb::list elements;
    for (const OnnxValue& e : v.elements) elements.append(value_to_python(e, shared));
    return nb::make_tuple("sequence", elements);
  }
  case OnnxValue::map: return map_to_python(v.elements[0], v.elements[1], shared);
  case OnnxValue::tensor: break;
  }
  nb::object payload =
      v.strings ? nb::cast(*v.strings) : nb::cast(Output{{"", v.type, v.dims, v.data, v.owner, nullptr}});
  return nb::make_tuple("tensor", v.type, nb::cast(v.dims), payload);
}

} // namespace tbx::python
