// Ctrl-C, and handlers of other signals that raise, end runs of Python's main thread.
#pragma once

namespace tbx::python {

/// From now on, where the calling thread is the main one. Needs the GIL.
void end_runs_at_signals();

} // namespace tbx::python
