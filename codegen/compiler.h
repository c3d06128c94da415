// The C++ compiler as a child process: found, identified, run with a time limit, never through a shell.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "codegen/build_module.h"

namespace tbx::codegen {

struct ProcessResult {
  int status = -1; ///< exit status; -1: could not start, killed by a signal or by the time limit
  bool timed_out = false;
  std::string output; ///< stdout and stderr together, at most 64 KiB
};

/// Runs `args[0]` with `args`, stdin empty. Kills it after `seconds`.
ProcessResult run_process(const std::vector<std::string>& args, int seconds);

/// Absolute path of the compiler to use, empty when there is none.
std::string find_compiler(const Toolchain& toolchain);
/// Text that changes when the compiler changes: path, size and time of the file, its version line.
const std::string& compiler_identity(const std::string& compiler);
std::vector<std::string> compiler_flags(Isa isa);

} // namespace tbx::codegen
