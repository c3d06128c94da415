#include "python/device.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "python/dlpack.h"
#include "python/text.h"

namespace nb = nanobind;

namespace tbx::python {
namespace {

constexpr const char *kPlain = "dltensor", *kVersioned = "dltensor_versioned";
constexpr const char *kUsedPlain = "used_dltensor", *kUsedVersioned = "used_dltensor_versioned";

[[noreturn]] void refuse(const std::string& why) { raise({Failure::model_error, "ModelError: " + why}); }

void check(const std::optional<Failure>& failure) {
  if (failure) raise(*failure);
}

template <class T> T value_or_raise(Result<T> result) {
  if (!result) raise(result.error());
  return std::move(result).value();
}

void* handle_of(uintptr_t handle) { return reinterpret_cast<void*>(handle); }

bool is_dense(const DlTensor& t) {
  int64_t step = 1;
  for (int32_t d = t.ndim; t.strides && d-- > 0;) {
    if (t.shape[d] != 1 && t.strides[d] != step) return false;
    step *= t.shape[d];
  }
  return true;
}

OutputTensor described(const DlTensor& t) {
  OutputTensor out;
  out.dims.assign(t.shape, t.shape + t.ndim);
  const bool empty = std::count(out.dims.begin(), out.dims.end(), 0) > 0;
  if (!empty && !is_dense(t))
    refuse("the tensor is not contiguous; make it so first (torch: x.contiguous())");
  if (t.device_type != kDlCuda && t.device_type != kDlCudaManaged)
    refuse("the tensor is not in memory of a GPU of NVIDIA's, but of DLPack's device type " +
           std::to_string(t.device_type));
  const auto type = std::find_if(std::begin(kDlTypes), std::end(kDlTypes), [&](const DlType& known) {
    return known.code == t.code && known.bits == t.bits && t.lanes == 1;
  });
  if (type == std::end(kDlTypes))
    refuse("elements of DLPack's type code " + std::to_string(t.code) + " with " + std::to_string(t.bits) +
           " bits and " + std::to_string(t.lanes) + " lanes have no ONNX type that lies so in memory");
  out.type = type->onnx;
  out.device = t.device_id;
  out.data = static_cast<std::byte*>(t.data) + t.byte_offset;
  return out;
}

template <class Managed> DeviceTensor taken(nb::handle capsule, const char* name, const char* used) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (!managed) throw nb::python_error();
  DeviceTensor out{described(managed->tensor), nullptr};
  PyCapsule_SetName(capsule.ptr(), used);
  PyCapsule_SetDestructor(capsule.ptr(), nullptr);
  out.foreign = std::shared_ptr<void>(managed, [](void* p) {
    auto* m = static_cast<Managed*>(p);
    if (m->deleter) m->deleter(m);
  });
  return out;
}

DeviceTensor from_capsule(nb::handle capsule, bool writable) {
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned)) {
    const auto* m = static_cast<DlManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    if (m->major != 1) refuse("the tensor comes as DLPack " + std::to_string(m->major) + "; 1 is understood");
    if (writable && (m->flags & kDlReadOnly) != 0) refuse("the tensor is read-only");
    return taken<DlManagedVersioned>(capsule, kVersioned, kUsedVersioned);
  }
  if (PyCapsule_IsValid(capsule.ptr(), kPlain)) return taken<DlManaged>(capsule, kPlain, kUsedPlain);
  refuse("the tensor's DLPack capsule was used before, or is none");
}

/// A capsule that keeps the tensor's memory.
template <class Managed> nb::object capsule_of(const DeviceTensor& t, const char* name) {
  const auto type = std::find_if(std::begin(kDlTypes), std::end(kDlTypes),
                                 [&](const DlType& known) { return known.onnx == t.tensor.type; });
  if (type == std::end(kDlTypes)) refuse("DLPack has no type for the elements of the tensor");
  struct Held {
    Managed managed;
    DeviceTensor tensor;
    std::vector<int64_t> strides;
  };
  auto held = std::make_unique<Held>();
  held->tensor = t;
  std::vector<int64_t>& dims = held->tensor.tensor.dims;
  held->strides.assign(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) held->strides[d - 1] = held->strides[d] * dims[d];
  held->managed.tensor = {t.tensor.data,
                          kDlCuda,
                          t.tensor.device,
                          static_cast<int32_t>(dims.size()),
                          type->code,
                          type->bits,
                          1,
                          dims.data(),
                          held->strides.data(),
                          0};
  if constexpr (std::is_same_v<Managed, DlManagedVersioned>) {
    held->managed.major = 1, held->managed.minor = 0;
    held->managed.flags = 0;
  }
  held->managed.context = held.get();
  held->managed.deleter = [](Managed* m) { delete static_cast<Held*>(m->context); };
  PyObject* capsule = PyCapsule_New(&held->managed, name, [](PyObject* object) {
    const char* unused = std::is_same_v<Managed, DlManagedVersioned> ? kVersioned : kPlain;
    if (!PyCapsule_IsValid(object, unused)) return; // somebody took it, who calls the deleter
    auto* m = static_cast<Managed*>(PyCapsule_GetPointer(object, unused));
    m->deleter(m);
  });
  if (!capsule) throw nb::python_error();
  held.release(); // NOLINT: the capsule's
  return nb::steal(capsule);
}

/// Memory at an address; `keep` holds it.
DeviceTensor at_address(uintptr_t address, int32_t type, std::vector<int64_t> dims, int32_t device,
                        nb::object keep) {
  OutputTensor t;
  t.type = type, t.dims = std::move(dims), t.device = device;
  t.data = reinterpret_cast<void*>(address);
  auto* held = new nb::object(std::move(keep));
  return {std::move(t), std::shared_ptr<void>(held, [](void* p) {
            nb::gil_scoped_acquire gil;
            delete static_cast<nb::object*>(p);
          })};
}

} // namespace

void bind_device(nb::module_& m) {
  nb::class_<DeviceTensor>(m, "DeviceTensor")
      .def_static("from_dlpack", &from_capsule)
      .def_static("at_address", &at_address, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none())
      .def_prop_ro("type", [](const DeviceTensor& t) { return t.tensor.type; })
      .def_prop_ro("dims", [](const DeviceTensor& t) { return t.tensor.dims; })
      .def_prop_ro("device", [](const DeviceTensor& t) { return t.tensor.device; })
      .def_prop_ro("address",
                   [](const DeviceTensor& t) { return reinterpret_cast<uintptr_t>(t.tensor.data); })
      .def_prop_ro("is_foreign", [](const DeviceTensor& t) { return t.foreign != nullptr; })
      .def("use_on_stream",
           [](const DeviceTensor& t, uintptr_t stream) {
             if (!t.foreign) check(use_on_stream(t.tensor, handle_of(stream)));
           })
      .def("dlpack", [](const DeviceTensor& t, bool versioned) {
        return versioned ? capsule_of<DlManagedVersioned>(t, kVersioned) : capsule_of<DlManaged>(t, kPlain);
      });

  nb::class_<std::shared_ptr<void>>(m, "Stream").def_prop_ro("handle", [](const std::shared_ptr<void>& s) {
    return reinterpret_cast<uintptr_t>(s.get());
  });
  m.def("make_stream", [](const std::string& device) { return value_or_raise(make_stream(device)); });
  m.def("order_streams", [](const std::string& device, uintptr_t earlier, uintptr_t later) {
    check(order_streams(device, handle_of(earlier), handle_of(later)));
  });
  m.def("wait_for_stream", [](const std::string& device, uintptr_t stream) {
    std::optional<Failure> failed;
    {
      nb::gil_scoped_release nogil;
      failed = wait_for_stream(device, handle_of(stream));
    }
    check(failed);
  });
  m.def("mark_stream", [](const std::string& device, uintptr_t stream) {
    return value_or_raise(mark_stream(device, handle_of(stream)));
  });
}

} // namespace tbx::python
