// The C++ compiler: where it is, which one it is, how it is called.
#pragma once

#include <string>
#include <vector>

#include "codegen/emit.h"
#include "codegen/process.h"
#include "codegen/toolchain.h"

namespace tbx::codegen {

/// Absolute path of the compiler to use, empty when there is none.
std::string find_compiler(const Toolchain& toolchain);
/// Why nothing can be compiled: there is no compiler, or the one that find_compiler() finds does not work.
/// Empty when it works; it is not asked again then.
std::string compiler_fault(const Toolchain& toolchain);
bool have_compiler(const Toolchain& toolchain = {});
/// Hexadecimal digits that change when the compiler changes: a hash of path, size and time of its file.
std::string compiler_identity(const std::string& compiler);
/// `brief`: for long functions, with less effort.
std::vector<std::string> compiler_flags(Isa isa, bool brief = false);

} // namespace tbx::codegen
