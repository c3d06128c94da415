#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "python/session.h"
#include "python/text.h"
#include "tensorbox/tensorbox.h"

namespace nb = nanobind;

namespace tbx::python {
namespace {

/// Asked while the C++ compiler works: a handler of Python's that raised (KeyboardInterrupt) ends the wait.
bool interrupted() {
  nb::gil_scoped_acquire gil;
  return PyErr_Occurred() || PyErr_CheckSignals() != 0;
}

} // namespace

void bind_options(nb::module_& m) {
  nb::class_<CompileOptions>(m, "CompileOptions")
      .def("__init__",
           [](CompileOptions* o) {
             new (o) CompileOptions();
             o->interrupted = interrupted;
           })
      .def_rw("threads", &CompileOptions::threads)
      .def_rw("compile", &CompileOptions::compile)
      .def_rw("tiered", &CompileOptions::tiered)
      .def_rw("reference", &CompileOptions::reference)
      .def_rw("device", &CompileOptions::device)
      .def_rw("isa", &CompileOptions::isa)
      .def_rw("cache_dir", &CompileOptions::cache_dir)
      .def_rw("keep_plans", &CompileOptions::keep_plans)
      .def_rw("precision", &CompileOptions::precision)
      .def_rw("seed", &CompileOptions::seed)
      .def_rw("fuse", &CompileOptions::fuse)
      .def_rw("fuse_extern", &CompileOptions::fuse_extern)
      .def_rw("disabled_passes", &CompileOptions::disabled_passes)
      .def_rw("operator_libraries", &CompileOptions::operator_libraries)
      .def_rw("external_data_dir", &CompileOptions::external_data_dir)
      .def_rw("dims", &CompileOptions::dims)
      .def_rw("overridable", &CompileOptions::overridable)
      .def_rw("all_dims_dynamic", &CompileOptions::all_dims_dynamic)
      .def_rw("every_value", &CompileOptions::every_value)
      .def_rw("max_memory", &CompileOptions::max_memory)
      .def_rw("time_limit_ms", &CompileOptions::time_limit_ms)
      .def_rw("load_memory", &CompileOptions::load_memory)
      .def_rw("load_time_limit_ms", &CompileOptions::load_time_limit_ms)
      .def_rw("max_model_bytes", &CompileOptions::max_model_bytes)
      .def_rw("max_nodes", &CompileOptions::max_nodes)
      .def_rw("max_nesting", &CompileOptions::max_nesting)
      .def_rw("max_tensors", &CompileOptions::max_tensors)
      .def_rw("max_tensor_bytes", &CompileOptions::max_tensor_bytes)
      .def_rw("max_dense_bytes", &CompileOptions::max_dense_bytes)
      .def_rw("strict_links", &CompileOptions::strict_links)
      .def_rw("untrusted", &CompileOptions::untrusted)
      .def_rw("compile_time_limit_ms", &CompileOptions::compile_time_limit_ms)
      .def_rw("compile_memory", &CompileOptions::compile_memory)
      .def_rw("private_threads", &CompileOptions::private_threads)
      .def_rw("state", &CompileOptions::state)
      .def_rw("state_capacity", &CompileOptions::state_capacity)
      .def_rw("state_limit", &CompileOptions::state_limit)
      .def("set_log", [](CompileOptions& o, nb::callable log) {
        o.log = [log](const std::string& message) {
          nb::gil_scoped_acquire gil;
          try {
            log(message);
          } catch (nb::python_error& e) { // nobody here can take it: to sys.unraisablehook, and on
            e.restore();
            PyErr_WriteUnraisable(log.ptr());
          }
        };
      });
}

} // namespace tbx::python
