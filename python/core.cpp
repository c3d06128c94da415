// The Python module tensorbox._core: a thin binding of include/tensorbox/tensorbox.h.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <stdexcept>

#include "python/bound_run.h"
#include "python/device.h"
#include "python/values.h"
#include "tensorbox/tensorbox.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

PyObject* model_error;
PyObject* unsupported_error;
PyObject* backend_error;
PyObject* internal_error;

/// Asked while the C++ compiler works: a handler of Python's that raised (KeyboardInterrupt) ends the wait.
bool interrupted() {
  nb::gil_scoped_acquire gil;
  return PyErr_Occurred() || PyErr_CheckSignals() != 0;
}

} // namespace

void tbx::python::raise(const tbx::Failure& failure) {
  if (PyErr_Occurred()) throw nb::python_error(); // what interrupted() saw
  PyObject* type = internal_error;
  switch (failure.kind) {
  case tbx::Failure::model_error: type = model_error; break;
  case tbx::Failure::unsupported_error: type = unsupported_error; break;
  case tbx::Failure::backend_error: type = backend_error; break;
  case tbx::Failure::internal_error: type = internal_error; break;
  }
  PyErr_SetString(type, failure.message.c_str()); // UTF-8, whatever the names in it are
  throw nb::python_error();
}

namespace {

using namespace tbx::python;

template <class T> T unwrap(tbx::Result<T> result) {
  if (!result) raise(result.error());
  if (PyErr_Occurred()) throw nb::python_error(); // interrupted, and done another way
  return std::move(result).value();
}

nb::list reports_to_python(const std::vector<tbx::KernelReport>& reports) {
  nb::list result;
  for (const tbx::KernelReport& r : reports) {
    nb::dict d;
    d["name"] = r.name;
    d["kind"] = r.kind;
    d["device"] = r.device;
    d["nodes"] = r.nodes;
    d["decisions"] = r.decisions;
    d["bytes"] = r.bytes;
    d["flops"] = r.flops;
    d["time_ns"] = r.time_ns;
    d["start_ns"] = r.start_ns;
    d["threads"] = r.threads;
    result.append(d);
  }
  return result;
}

} // namespace

NB_MODULE(_core, m) {
  m.attr("__version__") = tbx::version();
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

  bind_output(m);
  bind_device(m);
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

  nb::class_<tbx::TensorInfo>(m, "TensorInfo")
      .def_ro("name", &tbx::TensorInfo::name)
      .def_ro("type", &tbx::TensorInfo::type)
      .def_ro("type_name", &tbx::TensorInfo::type_name)
      .def_ro("node", &tbx::TensorInfo::node)
      .def_ro("any_rank", &tbx::TensorInfo::any_rank)
      .def_ro("has_default", &tbx::TensorInfo::has_default)
      .def_prop_ro("dims", [](const tbx::TensorInfo& i) { return i.dims; });

  nb::class_<tbx::CompileOptions>(m, "CompileOptions")
      .def("__init__",
           [](tbx::CompileOptions* o) {
             new (o) tbx::CompileOptions();
             o->interrupted = interrupted;
           })
      .def_rw("threads", &tbx::CompileOptions::threads)
      .def_rw("compile", &tbx::CompileOptions::compile)
      .def_rw("tiered", &tbx::CompileOptions::tiered)
      .def_rw("reference", &tbx::CompileOptions::reference)
      .def_rw("device", &tbx::CompileOptions::device)
      .def_rw("isa", &tbx::CompileOptions::isa)
      .def_rw("cache_dir", &tbx::CompileOptions::cache_dir)
      .def_rw("precision", &tbx::CompileOptions::precision)
      .def_rw("seed", &tbx::CompileOptions::seed)
      .def_rw("fuse", &tbx::CompileOptions::fuse)
      .def_rw("fuse_extern", &tbx::CompileOptions::fuse_extern)
      .def_rw("disabled_passes", &tbx::CompileOptions::disabled_passes)
      .def_rw("operator_libraries", &tbx::CompileOptions::operator_libraries)
      .def_rw("external_data_dir", &tbx::CompileOptions::external_data_dir)
      .def_rw("dims", &tbx::CompileOptions::dims)
      .def_rw("overridable", &tbx::CompileOptions::overridable)
      .def_rw("all_dims_dynamic", &tbx::CompileOptions::all_dims_dynamic)
      .def_rw("every_value", &tbx::CompileOptions::every_value)
      .def_rw("max_memory", &tbx::CompileOptions::max_memory)
      .def_rw("time_limit_ms", &tbx::CompileOptions::time_limit_ms)
      .def_rw("load_memory", &tbx::CompileOptions::load_memory)
      .def_rw("load_time_limit_ms", &tbx::CompileOptions::load_time_limit_ms)
      .def_rw("max_model_bytes", &tbx::CompileOptions::max_model_bytes)
      .def_rw("max_nodes", &tbx::CompileOptions::max_nodes)
      .def_rw("max_nesting", &tbx::CompileOptions::max_nesting)
      .def_rw("max_tensors", &tbx::CompileOptions::max_tensors)
      .def_rw("max_tensor_bytes", &tbx::CompileOptions::max_tensor_bytes)
      .def_rw("max_dense_bytes", &tbx::CompileOptions::max_dense_bytes)
      .def_rw("strict_links", &tbx::CompileOptions::strict_links)
      .def_rw("untrusted", &tbx::CompileOptions::untrusted)
      .def_rw("compile_time_limit_ms", &tbx::CompileOptions::compile_time_limit_ms)
      .def_rw("compile_memory", &tbx::CompileOptions::compile_memory)
      .def_rw("private_threads", &tbx::CompileOptions::private_threads)
      .def_rw("state", &tbx::CompileOptions::state)
      .def_rw("state_capacity", &tbx::CompileOptions::state_capacity)
      .def("set_log", [](tbx::CompileOptions& o, nb::callable log) {
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
      .def_ro("total_ms", &tbx::CompileStats::total_ms);

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
      .def_ro("architectures", &tbx::PackageReport::architectures);

  nb::class_<tbx::Session>(m, "Session")
      .def_static("from_file",
                  [](const nb::bytes& name, const tbx::CompileOptions& options) {
                    std::string path(name.c_str(), name.size()); // as the file system spells it
                    auto result = [&] {
                      nb::gil_scoped_release nogil;
                      return tbx::Session::compile(path, options);
                    }();
                    return unwrap(std::move(result));
                  })
      .def_static(
          "from_bytes",
          [](nb::bytes bytes, const tbx::CompileOptions& options) {
            std::span<const std::byte> span{reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
            auto result = [&] {
              nb::gil_scoped_release nogil;
              return tbx::Session::compile(span, options);
            }();
            return unwrap(std::move(result));
          })
      .def_prop_ro("inputs", [](const tbx::Session& s) { return s.inputs(); })
      .def_prop_ro("outputs", [](const tbx::Session& s) { return s.outputs(); })
      .def_prop_ro("overridable_initializers",
                   [](const tbx::Session& s) { return s.overridable_initializers(); })
      .def_prop_ro("metadata", [](const tbx::Session& s) { return s.metadata(); })
      .def_prop_ro("made_for", [](const tbx::Session& s) { return s.made_for(); })
      .def_prop_ro("stats", [](const tbx::Session& s) { return s.stats(); })
      .def_prop_ro("threads", &tbx::Session::threads)
      .def("run",
           [](const tbx::Session& s, const nb::list& given) {
             BoundInputs bound = bind(given);
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.run(bound.inputs);
             }();
             return outputs_to_python(unwrap(std::move(result)));
           })
      .def("run_values",
           [](const tbx::Session& s, const nb::list& given) {
             std::vector<HeldBuffer> held;
             tbx::Session::Values inputs;
             for (nb::handle item : given) {
               auto t = nb::cast<nb::tuple>(item);
               inputs.emplace_back(nb::cast<std::string>(t[0]), value_of(t[1], held));
             }
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.run_values(inputs);
             }();
             nb::list outputs;
             SharedKeys shared;
             for (const tbx::Session::Values values = unwrap(std::move(result));
                  const auto& [name, value] : values)
               outputs.append(nb::make_tuple(name, value_to_python(value, shared)));
             return outputs;
           })
      .def(
          "run_into",
          [](const tbx::Session& s, const nb::list& given, const nb::list& into,
             std::optional<uintptr_t> stream, bool async) {
            BoundInputs bound = bind(given);
            std::vector<HeldBuffer> held;
            const std::vector<tbx::TensorView> views = views_of(into, held);
            auto result = [&] {
              nb::gil_scoped_release nogil;
              void* on = reinterpret_cast<void*>(stream.value_or(0));
              return async    ? s.run_async(on, bound.inputs, views)
                     : stream ? s.run_on(on, bound.inputs, views)
                              : s.run(bound.inputs, views);
            }();
            return outputs_to_python(unwrap(std::move(result)));
          },
          "given"_a, "into"_a, "stream"_a = nb::none(), "asynchronous"_a = false)
      .def("synchronize",
           [](const tbx::Session& s) {
             std::optional<tbx::Failure> failed;
             {
               nb::gil_scoped_release nogil;
               failed = s.synchronize();
             }
             if (failed) raise(*failed);
           })
      .def_prop_ro("state_length", &tbx::Session::state_length)
      .def("set_state",
           [](const tbx::Session& s, const nb::list& given) {
             BoundInputs bound = bind(given);
             std::optional<tbx::Failure> failed;
             {
               nb::gil_scoped_release nogil;
               failed = s.set_state(bound.inputs);
             }
             if (failed) raise(*failed);
           })
      .def_prop_ro("device",
                   [](const tbx::Session& s) -> std::optional<int32_t> {
                     return s.device() == tbx::kHost ? std::nullopt : std::optional(s.device());
                   })
      .def("observe",
           [](const tbx::Session& s, const nb::list& given, nb::callable observer) {
             BoundInputs bound = bind(given);
             std::exception_ptr raised; // of the observer: it ends the run, and goes on to the caller
             auto see = [&](const std::string& name, const tbx::TensorView& view) {
               nb::gil_scoped_acquire gil;
               try {
                 tbx::OutputTensor copy{name, view.type, view.dims, view.data, nullptr, nullptr};
                 observer(name, view.type, nb::cast(view.dims), nb::cast(Output{copy}));
               } catch (...) {
                 raised = std::current_exception();
                 throw std::runtime_error("the observer raised an exception");
               }
             };
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.run_observed(bound.inputs, see);
             }();
             if (raised) std::rethrow_exception(raised);
             return outputs_to_python(unwrap(std::move(result)));
           })
      .def("profile", // (reports, outputs)
           [](const tbx::Session& s, const nb::list& given) {
             BoundInputs bound = bind(given);
             std::vector<tbx::OutputTensor> outputs;
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.profile(bound.inputs, &outputs);
             }();
             nb::list reports = reports_to_python(unwrap(std::move(result)));
             return nb::make_tuple(reports, outputs_to_python(std::move(outputs)));
           })
      .def("explain", [](const tbx::Session& s) { return reports_to_python(s.explain()); })
      .def("save",
           [](const tbx::Session& s, const nb::bytes& file, const std::vector<std::string>& isas,
              const std::vector<std::string>& architectures, bool for_inputs_seen) {
             std::string path(file.c_str(), file.size()); // as the file system spells it
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.save(path, {isas, architectures, for_inputs_seen});
             }();
             return unwrap(std::move(result));
           })
      .def("dump", [](const tbx::Session& s, const std::string& stage) {
        auto result = [&] {
          nb::gil_scoped_release nogil;
          return s.dump(stage);
        }();
        return unwrap(std::move(result));
      });

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
