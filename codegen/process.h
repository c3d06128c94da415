// Child processes: started without a shell, in a process group of their own, with limits, several at a time
// under one thread. Whatever ends the wait ends them, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tbx::codegen {

struct ProcessLimits {
  /// Of the clock, for all of them from the call on; each has a little more of the processor, should this
  /// process die; 0: none.
  int64_t time_ms = 0;
  int64_t memory = 0;     ///< bytes of address space of each process; 0: none
  bool gives_way = false; ///< to processes that somebody waits for
};

struct ProcessResult {
  int status = -1; ///< exit status; -1: could not start, killed by a signal or by the time limit, or unknown
  bool timed_out = false;
  /// This process ignores SIGCHLD: the system forgets how children end.
  bool unknown = false;
  std::string output; ///< stdout and stderr together, at most 64 KiB
};

struct Command {
  std::vector<std::string> args; ///< args[0] is an absolute path
  std::string temporary_folder;  ///< TMPDIR of the process; empty: as ours
};

/// Runs the commands, at most `jobs` at a time: fewer where the system gives no more processes. `ended` is
/// told of each in any order. Where it or `interrupted` (asked some twenty times a second; may be empty)
/// throws, those that run are killed with their children before the exception leaves.
void run_processes(const std::vector<Command>& commands, int jobs, const ProcessLimits& limits,
                   const std::function<void(size_t, ProcessResult)>& ended,
                   const std::function<void()>& interrupted = {});

/// One of them.
ProcessResult run_process(const std::vector<std::string>& args, int seconds);

} // namespace tbx::codegen
