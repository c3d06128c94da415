#include "python/interrupt.h"

#include <nanobind/nanobind.h>

#include <ctime>

#include "tensorbox/tensorbox.h"

namespace nb = nanobind;

namespace tbx::python {
namespace {

constinit thread_local bool is_main_thread = false;

/// Whether a handler of Python's raised (KeyboardInterrupt). Twenty times a second: to ask takes the GIL,
/// which other threads may have.
bool signal_raised() {
  if (!is_main_thread) return false; // handlers run there alone
  constexpr int64_t kEachNs = 50'000'000;
  static int64_t last = 0;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t ns = int64_t{1'000'000'000} * now.tv_sec + now.tv_nsec;
  if (ns - last < kEachNs) return false;
  last = ns;
  const nb::gil_scoped_acquire gil;
  return PyErr_CheckSignals() != 0;
}

} // namespace

void end_runs_at_signals() {
  const nb::module_ threading = nb::module_::import_("threading");
  is_main_thread = threading.attr("current_thread")().is(threading.attr("main_thread")());
  // It lasts as long as the thread.
  if (is_main_thread) static const CancelScope ending(signal_raised);
}

} // namespace tbx::python
