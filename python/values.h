// Tensors and values between Python and C++. numpy and ml_dtypes types are chosen by the Python side; here
// arrays are buffers with an ONNX element type number.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/device.h"
#include "python/text.h"
#include "tensorbox/tensorbox.h"

namespace tbx::python {

/// Memory of a Python object that supports the buffer protocol, held while this lives.
class HeldBuffer {
public:
  explicit HeldBuffer(nanobind::handle object, bool writable) {
    int flags = PyBUF_C_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
  }
  HeldBuffer(HeldBuffer&& other) noexcept : view_(other.view_) { other.view_.obj = nullptr; }
  HeldBuffer(const HeldBuffer&) = delete;
  ~HeldBuffer() {
    if (view_.obj) PyBuffer_Release(&view_);
  }
  void* data() const { return view_.buf; }
  size_t bytes() const { return static_cast<size_t>(view_.len); }

private:
  Py_buffer view_{};
};

/// Owns one output; Python sees it through the buffer protocol as bytes.
struct Output {
  OutputTensor tensor;
};

void bind_output(nanobind::module_& m); ///< the class Output

/// ModelError where the memory is smaller than the dims say.
void check_size(const HeldBuffer& memory, int32_t type, const std::vector<int64_t>& dims);

/// Inputs of a run, and what keeps their memory.
struct BoundInputs {
  std::vector<HeldBuffer> held;
  std::vector<std::unique_ptr<std::vector<std::string>>> strings;
  Session::Inputs inputs;
};

/// Each input is a tuple: name, ONNX element type, dims, and a C-contiguous buffer, a list of str, or a
/// DeviceTensor, which the tuple keeps.
BoundInputs bind(const nanobind::list& given);

/// Where outputs go: None, the number of a GPU, a DeviceTensor, or a tuple of ONNX element type, dims and a
/// buffer, which `held` keeps.
std::vector<TensorView> views_of(const nanobind::list& into, std::vector<HeldBuffer>& held);

/// Each output as a tuple: name, ONNX element type, dims, and an Output, a list of str or a DeviceTensor.
nanobind::list outputs_to_python(std::vector<OutputTensor> outputs);

// Values of any type are ("tensor", type, dims, payload), ("sequence", [...]), ("map", keys, values) or, to
// Python, a dict, None.

/// `held` keeps the memory that the value shows.
OnnxValue value_of(nanobind::handle item, std::vector<HeldBuffer>& held);

/// Keys that many maps share, as objects.
struct SharedKeys {
  const void* of = nullptr;
  std::optional<std::vector<nanobind::object>> objects;
};

nanobind::object value_to_python(const OnnxValue& v, SharedKeys& shared);

} // namespace tbx::python
