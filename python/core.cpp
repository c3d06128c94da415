// The Python module tensorbox._core: a thin binding of include/tensorbox/tensorbox.h.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "python/bound_run.h"
#include "python/device.h"
#include "python/interrupt.h"
#include "python/session.h"
#include "python/values.h"
#include "tensorbox/tensorbox.h"

namespace nb = nanobind;

namespace {

PyObject* model_error;
PyObject* unsupported_error;
PyObject* backend_error;
PyObject* internal_error;

/// The exception, and what a message of that kind begins with.
std::pair<PyObject*, std::string_view> exception_of(tbx::Failure::Kind kind) {
  switch (kind) {
  case tbx::Failure::model_error: return {model_error, "ModelError: "};
  case tbx::Failure::unsupported_error: return {unsupported_error, "UnsupportedError: "};
  case tbx::Failure::backend_error: return {backend_error, "BackendError: "};
  case tbx::Failure::internal_error: break;
  }
  return {internal_error, "InternalError: "};
}

} // namespace

void tbx::python::raise(const tbx::Failure& failure) {
  if (PyErr_Occurred()) throw nb::python_error(); // what interrupted() saw
  const auto [type, name] = exception_of(failure.kind);
  // Python shows the name of the exception itself. UTF-8, whatever the names in the text are.
  const size_t kind = failure.message.starts_with(name) ? name.size() : 0;
  PyErr_SetString(type, failure.message.c_str() + kind);
  throw nb::python_error();
}

namespace {

using namespace tbx::python;

void bind_errors(nb::module_& m) {
  auto exception = [&](const char* name, PyObject* base, const char* doc) {
    PyObject* type =
        PyErr_NewExceptionWithDoc((std::string("tensorbox.") + name).c_str(), doc, base, nullptr);
    m.attr(name) = nb::handle(type);
    return type;
  };
  PyObject* error = exception("Error", PyExc_RuntimeError,
                              "What tensorbox raises; the message names node, operator, cause and way out.");
  model_error = exception("ModelError", error, "The model, or an input of a run, is wrong.");
  unsupported_error = exception("UnsupportedError", error,
                                "The model is valid, and needs something that tensorbox does not have.");
  backend_error = exception("BackendError", error, "The C++ compiler, a driver or a library failed.");
  internal_error = exception("InternalError", error, "A defect of tensorbox.");
}

/// Copies between memory of the host and that of devices.
void bind_copies(nb::module_& m) {
  // Numbers of a tensor of the host as a DeviceTensor, and back.
  m.def("to_device",
        [](int32_t type, const std::vector<int64_t>& dims, nb::handle buffer, const std::string& device) {
          const HeldBuffer held(buffer, false);
          check_size(held, type, dims);
          return DeviceTensor{unwrap(tbx::to_device({held.data(), type, dims}, device)), nullptr};
        });
  m.def("assign",
        [](const DeviceTensor& to, int32_t type, const std::vector<int64_t>& dims, nb::handle buffer) {
          const HeldBuffer held(buffer, false);
          check_size(held, type, dims);
          if (auto failed = tbx::assign(to.tensor, {held.data(), type, dims})) raise(*failed);
        });
  m.def("to_host", [](const DeviceTensor& t) {
    auto copy = [&] {
      nb::gil_scoped_release nogil;
      return tbx::to_host(t.tensor);
    }();
    return Output{unwrap(std::move(copy))};
  });
}

/// What models, sessions and packages tell of themselves.
void bind_facts(nb::module_& m) {
  nb::class_<tbx::TensorInfo>(m, "TensorInfo")
      .def_ro("name", &tbx::TensorInfo::name)
      .def_ro("type", &tbx::TensorInfo::type)
      .def_ro("type_name", &tbx::TensorInfo::type_name)
      .def_ro("node", &tbx::TensorInfo::node)
      .def_ro("any_rank", &tbx::TensorInfo::any_rank)
      .def_ro("has_default", &tbx::TensorInfo::has_default)
      .def_prop_ro("dims", [](const tbx::TensorInfo& i) { return i.dims; });

  nb::class_<tbx::CompileStats>(m, "CompileStats")
      .def_ro("nodes", &tbx::CompileStats::nodes)
      .def_ro("generated_kernels", &tbx::CompileStats::generated_kernels)
      .def_ro("evaluated_kernels", &tbx::CompileStats::evaluated_kernels)
      .def_ro("extern_kernels", &tbx::CompileStats::extern_kernels)
      .def_ro("device_steps", &tbx::CompileStats::device_steps)
      .def_ro("copies", &tbx::CompileStats::copies)
      .def_ro("compiled_units", &tbx::CompileStats::compiled_units)
      .def_ro("cached_units", &tbx::CompileStats::cached_units)
      .def_ro("import_ms", &tbx::CompileStats::import_ms)
      .def_ro("optimize_ms", &tbx::CompileStats::optimize_ms)
      .def_ro("lower_ms", &tbx::CompileStats::lower_ms)
      .def_ro("schedule_ms", &tbx::CompileStats::schedule_ms)
      .def_ro("build_ms", &tbx::CompileStats::build_ms)
      .def_ro("total_ms", &tbx::CompileStats::total_ms)
      .def_ro("kept_plan", &tbx::CompileStats::kept_plan)
      .def_ro("not_kept", &tbx::CompileStats::not_kept)
      .def_ro("not_compiled", &tbx::CompileStats::not_compiled)
      .def("__repr__", [](const tbx::CompileStats& s) {
        return "<tensorbox.CompileStats " + std::to_string(s.nodes) + " nodes, " +
               std::to_string(s.generated_kernels) + " generated and " + std::to_string(s.extern_kernels) +
               " library kernels, " + std::to_string(std::lround(s.total_ms)) + " ms>";
      });

  nb::class_<tbx::ModelMetadata>(m, "ModelMetadata")
      .def_ro("producer_name", &tbx::ModelMetadata::producer_name)
      .def_ro("producer_version", &tbx::ModelMetadata::producer_version)
      .def_ro("graph_name", &tbx::ModelMetadata::graph_name)
      .def_ro("domain", &tbx::ModelMetadata::domain)
      .def_ro("description", &tbx::ModelMetadata::description)
      .def_ro("graph_description", &tbx::ModelMetadata::graph_description)
      .def_ro("version", &tbx::ModelMetadata::version)
      .def_ro("custom", &tbx::ModelMetadata::custom);

  nb::class_<tbx::PackageReport>(m, "PackageReport")
      .def_ro("bytes", &tbx::PackageReport::bytes)
      .def_ro("constant_bytes", &tbx::PackageReport::constant_bytes)
      .def_ro("kernel_bytes", &tbx::PackageReport::kernel_bytes)
      .def_ro("programs", &tbx::PackageReport::programs)
      .def_ro("isas", &tbx::PackageReport::isas)
      .def_ro("architectures", &tbx::PackageReport::architectures)
      .def("__repr__", [](const tbx::PackageReport& r) {
        std::string isas;
        for (const std::string& isa : r.isas) isas += (isas.empty() ? "" : ", ") + isa;
        return "<tensorbox.PackageReport " + std::to_string(r.bytes) + " bytes, " +
               std::to_string(r.programs) + " program(s), native kernels: " + (isas.empty() ? "none" : isas) +
               ">";
      });
}

void bind_optimize(nb::module_& m) {
  m.def("optimize",
        [](const std::string& model, const std::string& to, const std::map<std::string, int64_t>& dims,
           int opset, const std::vector<std::string>& disabled_passes, const tbx::CompileOptions& limits) {
          const tbx::OptimizeOptions options{dims, opset, disabled_passes, limits};
          auto result = [&] {
            nb::gil_scoped_release nogil;
            return tbx::optimize(model, to, options);
          }();
          tbx::OptimizeReport r = unwrap(std::move(result));
          nb::dict report;
          report["opset"] = r.opset;
          report["nodes_before"] = r.nodes_before;
          report["nodes_after"] = r.nodes_after;
          report["operators_before"] = r.operators_before;
          report["operators_after"] = r.operators_after;
          report["rewrites"] = r.rewrites;
          report["left_out"] = r.left_out;
          return report;
        });
}

} // namespace

NB_MODULE(_core, m) {
  // A session may outlive the interpreter: a thread or a cache of the caller's holds it. That is no error of
  // theirs.
  nanobind::set_leak_warnings(false);
  m.attr("__version__") = tbx::version();
  end_runs_at_signals();
  bind_errors(m);
  bind_output(m);
  bind_device(m);
  bind_copies(m);
  bind_facts(m);
  bind_options(m);
  bind_session(m);
  bind_optimize(m);
  bind_bound_run(m);
  m.def("set_seed", &tbx::set_seed);
  m.def("device_problem", &tbx::device_problem);
  m.def("pass_names", &tbx::pass_names);
  m.def("operators", [] {
    nb::list result;
    for (const tbx::OperatorInfo& o : tbx::operators())
      result.append(nb::make_tuple(o.domain, o.name, o.since));
    return result;
  });
}
