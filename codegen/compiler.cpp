#include "codegen/compiler.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>

namespace tbx::codegen {

namespace fs = std::filesystem;

namespace {

bool is_executable(const fs::path& p) {
  std::error_code ec;
  return fs::is_regular_file(p, ec) && access(p.c_str(), X_OK) == 0;
}

std::string on_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_executable(name) ? fs::absolute(name).string() : "";
  const char* path = std::getenv("PATH");
  std::string_view rest = path ? path : "/usr/bin:/bin";
  while (!rest.empty()) {
    size_t colon = std::min(rest.find(':'), rest.size());
    fs::path candidate = fs::path(rest.substr(0, colon)) / name;
    // A relative entry of PATH would run whatever lies in the current folder.
    if (candidate.is_absolute() && is_executable(candidate)) return candidate.string();
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return "";
}

/// Why find_compiler() has found nothing.
std::string nothing_found(const Toolchain& toolchain) {
  const char* variable = std::getenv("TBX_CXX");
  if (toolchain.compiler.empty() && variable && *variable)
    return fmt::format(
        "no C++ compiler found: TBX_CXX is '{}', which is no program (give a name or a path alone; "
        "options go into TBX_CXXFLAGS)",
        variable);
  return "no C++ compiler found (install g++ or clang++, or set TBX_CXX to one)";
}

/// How a process ended that did not succeed, and the first line of what it said.
std::string failure_of(const ProcessResult& r) {
  const std::string line = r.output.substr(0, r.output.find('\n'));
  const std::string how = r.timed_out    ? "it takes too long"
                          : r.status < 0 ? "it cannot be started, or was killed"
                                         : fmt::format("exit status {}", r.status);
  return line.empty() ? how : how + ": " + line;
}

} // namespace

std::string find_compiler(const Toolchain& toolchain) {
  if (!toolchain.compiler.empty()) return on_path(toolchain.compiler);
  if (const char* cxx = std::getenv("TBX_CXX"); cxx && *cxx) return on_path(cxx);
  for (const char* name : {"c++", "g++", "clang++"})
    if (std::string path = on_path(name); !path.empty()) return path;
  return "";
}

std::string compiler_fault(const Toolchain& toolchain) {
  static std::mutex mutex;
  static std::set<std::string> working;
  const std::string compiler = find_compiler(toolchain);
  if (compiler.empty()) return nothing_found(toolchain);
  std::scoped_lock lock(mutex);
  if (working.contains(compiler)) return {};
  const ProcessResult r = run_process({compiler, "-x", "c++", "-fsyntax-only", "/dev/null"}, 20);
  // One that fails may do so for want of memory or processes, and is asked again.
  if (r.status != 0 && !(r.unknown && r.output.empty()))
    return fmt::format("the C++ compiler {} does not compile an empty file ({})", compiler, failure_of(r));
  working.insert(compiler);
  return {};
}

bool have_compiler(const Toolchain& toolchain) { return compiler_fault(toolchain).empty(); }

std::string compiler_identity(const std::string& compiler) {
  struct stat st {};
  std::error_code ec;
  const fs::path real = fs::canonical(compiler, ec);
  std::string text = compiler;
  // Size and time of the binary say that it changed; asking for its version would cost a process per start.
  if (!ec && stat(real.c_str(), &st) == 0)
    text = fmt::format("{} {} {}.{}", real.string(), st.st_size, static_cast<int64_t>(st.st_mtim.tv_sec),
                       st.st_mtim.tv_nsec);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

/// What $TBX_CXXFLAGS adds, separated by spaces: -fsanitize=address builds kernels that a sanitizer watches.
static std::vector<std::string> extra_flags() {
  std::vector<std::string> flags;
  const char* given = std::getenv("TBX_CXXFLAGS");
  std::istringstream text(given ? given : "");
  for (std::string flag; text >> flag;) flags.push_back(flag);
  return flags;
}

std::vector<std::string> compiler_flags(Isa isa, bool brief) {
  const char* arch = isa == Isa::avx512 ? "-march=x86-64-v4"
                     : isa == Isa::avx2 ? "-march=x86-64-v3"
                                        : "-march=x86-64";
  // What -O3 adds can take minutes in functions of thousands of lines. Signed integers wrap, memory has no
  // types, floats are neither contracted nor reordered; traps and errno are not observed. Loops are
  // vectorised by us: the compiler's own attempts cost time and code size.
  std::vector<std::string> flags{"-std=c++20",
                                 brief ? "-O2" : "-O3",
                                 arch,
                                 "-fwrapv",
                                 "-fno-strict-aliasing",
                                 "-fno-math-errno",
                                 "-fno-trapping-math",
                                 "-ffp-contract=off",
                                 "-fno-tree-vectorize",
                                 "-ftree-slp-vectorize",
                                 "-fno-exceptions",
                                 "-fno-rtti",
                                 "-fno-asynchronous-unwind-tables",
                                 "-fno-stack-protector",
                                 "-fno-plt",
                                 "-fPIC",
                                 "-w",
                                 "-Wno-psabi"};
  for (std::string& flag : extra_flags()) flags.push_back(std::move(flag));
  return flags;
}

} // namespace tbx::codegen
