#include "python/session.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <exception>
#include <memory>
#include <stdexcept>

#include "python/values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tbx::python {
namespace {

nb::list reports_to_python(const std::vector<KernelReport>& reports) {
  nb::list result;
  for (const KernelReport& r : reports) {
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
    d["reads_from"] = r.reads_from;
    result.append(d);
  }
  return result;
}

void bind_runs(nb::class_<Session>& session) {
  session
      .def("run",
           [](const Session& s, const nb::list& given) {
             BoundInputs bound = bind(given);
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.run(bound.inputs);
             }();
             return outputs_to_python(unwrap(std::move(result)));
           })
      .def("run_values",
           [](const Session& s, const nb::list& given) {
             std::vector<HeldBuffer> held;
             Session::Values inputs;
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
             for (const Session::Values values = unwrap(std::move(result));
                  const auto& [name, value] : values)
               outputs.append(nb::make_tuple(name, value_to_python(value, shared)));
             return outputs;
           })
      .def(
          "run_into",
          [](const Session& s, const nb::list& given, const nb::list& into, std::optional<uintptr_t> stream,
             bool async) {
            BoundInputs bound = bind(given);
            std::vector<HeldBuffer> held;
            const std::vector<TensorView> views = views_of(into, held);
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
           [](const Session& s) {
             std::optional<Failure> failed;
             {
               nb::gil_scoped_release nogil;
               failed = s.synchronize();
             }
             if (failed) raise(*failed);
           })
      .def_prop_ro("state_length", &Session::state_length)
      .def("set_state",
           [](const Session& s, const nb::list& given) {
             BoundInputs bound = bind(given);
             std::optional<Failure> failed;
             {
               nb::gil_scoped_release nogil;
               failed = s.set_state(bound.inputs);
             }
             if (failed) raise(*failed);
           })
      .def_prop_ro("device", [](const Session& s) -> std::optional<int32_t> {
        return s.device() == kHost ? std::nullopt : std::optional(s.device());
      });
}

/// What a session tells of itself and of its runs.
void bind_reports(nb::class_<Session>& session) {
  session
      .def("observe",
           [](const Session& s, const nb::list& given, nb::callable observer) {
             BoundInputs bound = bind(given);
             std::exception_ptr raised; // of the observer: it ends the run, and goes on to the caller
             auto see = [&](const std::string& name, const TensorView& view) {
               nb::gil_scoped_acquire gil;
               try {
                 OutputTensor copy{name, view.type, view.dims, view.data, nullptr, nullptr};
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
           [](const Session& s, const nb::list& given, bool with_outputs) {
             BoundInputs bound = bind(given);
             std::vector<OutputTensor> outputs;
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.profile(bound.inputs, with_outputs ? &outputs : nullptr);
             }();
             nb::list reports = reports_to_python(unwrap(std::move(result)));
             return nb::make_tuple(reports, outputs_to_python(std::move(outputs)));
           })
      .def("explain", [](const Session& s) { return reports_to_python(s.explain()); })
      .def("save",
           [](const Session& s, const nb::bytes& file, const std::vector<std::string>& isas,
              const std::vector<std::string>& architectures, bool for_inputs_seen) {
             std::string path(file.c_str(), file.size()); // as the file system spells it
             auto result = [&] {
               nb::gil_scoped_release nogil;
               return s.save(path, {isas, architectures, for_inputs_seen});
             }();
             return unwrap(std::move(result));
           })
      .def("dump", [](const Session& s, const std::string& stage) {
        auto result = [&] {
          nb::gil_scoped_release nogil;
          return s.dump(stage);
        }();
        return unwrap(std::move(result));
      });
}

/// Ends runs of threads that are inside of it.
class Cancellation {
public:
  void set(bool cancelled) { flag_ = cancelled; }
  bool cancelled() const { return flag_; }
  void enter() { scopes().push_back(std::make_unique<CancelScope>(flag_)); }
  void exit() {
    if (scopes().empty()) throw std::runtime_error("a Cancellation is left by a thread that is not in it");
    scopes().pop_back();
  }

private:
  static std::vector<std::unique_ptr<CancelScope>>& scopes() {
    thread_local std::vector<std::unique_ptr<CancelScope>> entered;
    return entered;
  }
  std::atomic<bool> flag_{false};
};

void bind_cancellation(nb::module_& m) {
  nb::class_<Cancellation>(m, "Cancellation",
                           R"(Ends runs early, from any thread:

    stop = tensorbox.Cancellation()
    with stop:
        outputs = session.run(inputs)  # ModelError soon after another thread has called stop.cancel()

Runs that a thread begins inside of the block end as they would at a limit of time (docs/security.md).)")
      .def(nb::init<>())
      .def(
          "cancel", [](Cancellation& c) { c.set(true); }, "Ends the runs inside of it, those to come, too.")
      .def(
          "reset", [](Cancellation& c) { c.set(false); }, "Runs that begin from now on go on.")
      .def_prop_ro("cancelled", &Cancellation::cancelled, "Whether cancel() was called.")
      .def("__enter__",
           [](nb::handle self) {
             nb::cast<Cancellation&>(self).enter();
             return nb::borrow(self);
           })
      .def("__exit__", [](Cancellation& c, nb::args) { c.exit(); });
}

} // namespace

void bind_session(nb::module_& m) {
  bind_cancellation(m);
  nb::class_<Session> session(m, "Session");
  session
      .def_static("from_file",
                  [](const nb::bytes& name, const CompileOptions& options) {
                    std::string path(name.c_str(), name.size()); // as the file system spells it
                    auto result = [&] {
                      nb::gil_scoped_release nogil;
                      return Session::compile(path, options);
                    }();
                    return unwrap(std::move(result));
                  })
      .def_static(
          "from_bytes",
          [](nb::bytes bytes, const CompileOptions& options) {
            std::span<const std::byte> span{reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
            auto result = [&] {
              nb::gil_scoped_release nogil;
              return Session::compile(span, options);
            }();
            return unwrap(std::move(result));
          })
      .def_prop_ro("inputs", [](const Session& s) { return s.inputs(); })
      .def_prop_ro("outputs", [](const Session& s) { return s.outputs(); })
      .def_prop_ro("overridable_initializers", [](const Session& s) { return s.overridable_initializers(); })
      .def_prop_ro("metadata", [](const Session& s) { return s.metadata(); })
      .def_prop_ro("made_for", [](const Session& s) { return s.made_for(); })
      .def_prop_ro("stats", [](const Session& s) { return s.stats(); })
      .def_prop_ro("threads", &Session::threads);
  bind_runs(session);
  bind_reports(session);
}

} // namespace tbx::python
