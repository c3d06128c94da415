// Tensors and streams of a device in Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "tensorbox/device.h"

namespace tbx::python {

/// A tensor in memory of a GPU: an output, a copy of ours, or memory of another library's.
struct DeviceTensor {
  OutputTensor tensor;
  std::shared_ptr<void> foreign; ///< keeps memory of another library's; `tensor` has no owner then
};

/// Raises the Python exception of a failure.
[[noreturn]] void raise(const Failure& failure);
/// The value; raises where there is none, or where a wait was interrupted and the work was done another way.
template <class T> T unwrap(Result<T> result) {
  if (!result) raise(result.error());
  if (PyErr_Occurred()) throw nanobind::python_error();
  return std::move(result).value();
}

void bind_device(nanobind::module_& m);

} // namespace tbx::python
