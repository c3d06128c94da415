// BoundRun in Python.
#pragma once

#include <nanobind/nanobind.h>

namespace tbx::python {

/// The class BoundRun, made of a session and tuples as run_into takes them.
void bind_bound_run(nanobind::module_& m);

} // namespace tbx::python
