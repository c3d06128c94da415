// Signals that end the command, and what it starts with: nothing is left behind, nothing printed into files.
#pragma once

namespace tbx::tools {

/// Descriptors 0 to 2 that are closed are opened on /dev/null: a file that got such a number would get the
/// messages.
void open_standard_files();

/// SIGINT, SIGTERM and SIGHUP stop the C++ compiler and remove its files before they end the process, where
/// it waits for one; else they end it soon.
void handle_signals();
/// One of them has come.
bool interrupted();
/// Ends the process by the signal that came, if any: the caller's shell sees it.
void end_by_signal();

} // namespace tbx::tools
