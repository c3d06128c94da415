// Session in Python, and the options it is made with.
#pragma once

#include <nanobind/nanobind.h>

namespace tbx::python {

void bind_options(nanobind::module_& m); ///< the class CompileOptions
void bind_session(nanobind::module_& m); ///< the class Session

} // namespace tbx::python
