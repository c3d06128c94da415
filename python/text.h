// Text between Python and C++: names in a model and paths are any bytes. What is no UTF-8 becomes lone
// surrogates, as in the names of files (PEP 383), and what Python holds so goes back as the bytes it was.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace nanobind::detail {

template <> struct type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  bool from_python(handle src, uint32_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(src.ptr())) return false;
    object bytes = steal(PyUnicode_AsEncodedString(src.ptr(), "utf-8", "surrogateescape"));
    if (!bytes.is_valid()) {
      PyErr_Clear(); // a surrogate that stands for no byte
      return false;
    }
    value.assign(PyBytes_AsString(bytes.ptr()), static_cast<size_t>(PyBytes_Size(bytes.ptr())));
    return true;
  }

  static handle from_cpp(const std::string& text, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  }
};

} // namespace nanobind::detail
