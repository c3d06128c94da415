// Values of any type in the C interface (include/tensorbox/c.h).
#include <deque>
#include <memory>

#include "package/c_handles.h"

struct tbx_values {
  tbx::Session::Values values;                 ///< what all else points to
  std::vector<tbx_value> shown;                ///< by output
  std::deque<std::vector<tbx_value>> elements; ///< of sequences and maps
  std::deque<std::vector<const char*>> texts;  ///< of tensors of strings
};

namespace tbx::package {
namespace {

constexpr int kMaxNesting = 64; ///< no type of ONNX has more; a value that holds itself ends here

OnnxValue value_of(const tbx_value& v, const char* name, int depth = 0) {
  const auto refuse_it = [&](const char* why) { refuse(std::string("input '") + name + "' " + why); };
  if (depth > kMaxNesting) refuse_it("is nested too deep");
  OnnxValue made;
  switch (v.kind) {
  case TBX_NONE: return made;
  case TBX_TENSOR: {
    std::vector<std::string> strings;
    TensorView view = checked_view(v.tensor, name, strings);
    if (v.tensor.type == TBX_STRING) return OnnxValue::of_strings(std::move(strings), std::move(view.dims));
    made.kind = OnnxValue::tensor;
    made.type = view.type;
    made.dims = std::move(view.dims);
    made.data = view.data;
    return made;
  }
  case TBX_SEQUENCE:
  case TBX_MAP: break;
  default: refuse_it("is of no kind that there is");
  }
  if (v.count > 0 && !v.elements) refuse_it("has no elements");
  for (size_t k = 0; k < v.count; ++k) made.elements.push_back(value_of(v.elements[k], name, depth + 1));
  made.kind = v.kind == TBX_MAP ? OnnxValue::map : OnnxValue::sequence;
  return made;
}

tbx_value shown(const OnnxValue& v, tbx_values& in) {
  tbx_value made{};
  switch (v.kind) {
  case OnnxValue::none: made.kind = TBX_NONE; return made;
  case OnnxValue::tensor:
    made.kind = TBX_TENSOR;
    made.tensor = {nullptr, v.type, static_cast<int32_t>(v.dims.size()), v.dims.data(), v.data};
    if (v.strings) {
      std::vector<const char*>& texts = in.texts.emplace_back();
      for (const std::string& s : *v.strings) texts.push_back(s.c_str());
      made.tensor.data = texts.data();
    }
    return made;
  case OnnxValue::sequence:
  case OnnxValue::map: break;
  }
  std::vector<tbx_value> elements;
  for (const OnnxValue& e : v.elements) elements.push_back(shown(e, in));
  in.elements.push_back(std::move(elements));
  made.kind = v.kind == OnnxValue::map ? TBX_MAP : TBX_SEQUENCE;
  made.count = v.elements.size();
  made.elements = in.elements.back().data();
  return made;
}

} // namespace
} // namespace tbx::package

using namespace tbx::package;

tbx_values* tbx_run_values(const tbx_session* session, const tbx_value* inputs, size_t num_inputs,
                           tbx_error** error) {
  return caught(error, static_cast<tbx_values*>(nullptr), [&] {
    if (!session) refuse("the session is NULL");
    if (num_inputs > 0 && !inputs) refuse("there are inputs, and the pointer to them is NULL");
    tbx::Session::Values given;
    for (size_t i = 0; i < num_inputs; ++i) {
      if (!inputs[i].name) refuse("an input has no name");
      given.emplace_back(inputs[i].name, value_of(inputs[i], inputs[i].name));
    }
    auto made = std::make_unique<tbx_values>();
    made->values = session->session.run_values(given).value();
    for (const auto& [name, value] : made->values) {
      made->shown.push_back(shown(value, *made));
      made->shown.back().name = name.c_str();
    }
    return made.release();
  });
}

size_t tbx_values_count(const tbx_values* values) { return values ? values->shown.size() : 0; }

tbx_value tbx_values_at(const tbx_values* values, size_t number) {
  return values && number < values->shown.size() ? values->shown[number] : tbx_value{};
}

void tbx_values_free(tbx_values* values) { delete values; }
