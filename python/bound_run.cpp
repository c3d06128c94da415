#include "python/bound_run.h"

#include <memory>
#include <vector>

#include "python/values.h"

namespace nb = nanobind;

namespace tbx::python {
namespace {

/// A bound run, and what keeps its memory.
class HeldRun {
public:
  HeldRun(const Session& session, nb::list given, nb::list into)
      : given_(std::move(given)), into_(std::move(into)), inputs_(bind(given_)) {
    auto bound = session.bind(inputs_.inputs, views_of(into_, held_));
    if (!bound) raise(bound.error());
    run_ = std::make_unique<BoundRun>(std::move(bound).value());
  }
  HeldRun(const HeldRun&) = delete;
  HeldRun& operator=(const HeldRun&) = delete;
  ~HeldRun() {
    nb::gil_scoped_release nogil;
    run_.reset(); // waits for runs that read the memory
  }
  /// `how` is a function of BoundRun.
  template <class... Args, class... Given>
  void run(std::optional<Failure> (BoundRun::*how)(Args...) const, Given... given) const {
    std::optional<Failure> failed;
    {
      nb::gil_scoped_release nogil;
      failed = (run_.get()->*how)(given...);
    }
    if (failed) raise(*failed);
    if (PyErr_Occurred()) throw nb::python_error(); // interrupted, and done another way
  }

private:
  nb::list given_, into_;
  BoundInputs inputs_;
  std::vector<HeldBuffer> held_;
  std::unique_ptr<BoundRun> run_;
};

} // namespace

void bind_bound_run(nb::module_& m) {
  nb::class_<HeldRun>(m, "BoundRun")
      .def(nb::init<const Session&, nb::list, nb::list>())
      .def("run", [](const HeldRun& r) { r.run(&BoundRun::run); })
      .def("run_on", [](const HeldRun& r,
                        uintptr_t stream) { r.run(&BoundRun::run_on, reinterpret_cast<void*>(stream)); })
      .def("run_async", [](const HeldRun& r, uintptr_t stream) {
        r.run(&BoundRun::run_async, reinterpret_cast<void*>(stream));
      });
}

} // namespace tbx::python
