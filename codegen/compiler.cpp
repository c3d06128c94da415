// Compiler processes.
#include "codegen/compiler.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

#include "base/error.h"

extern char** environ;

namespace tbx::codegen {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxOutput = 64 << 10;

/// The child's environment: ours, except what would make the compiler's messages or results depend on the
/// user's set-up.
std::vector<char*> child_environment() {
  static char locale[] = "LC_ALL=C";
  std::vector<char*> env;
  for (char** e = environ; *e; ++e) {
    std::string_view v = *e;
    bool drop = v.starts_with("LC_ALL=") || v.starts_with("CPATH=") || v.starts_with("CPLUS_INCLUDE_PATH=") ||
                v.starts_with("LD_PRELOAD=") || v.starts_with("GCC_EXEC_PREFIX=") ||
                v.starts_with("COMPILER_PATH=");
    if (!drop) env.push_back(*e);
  }
  env.push_back(locale);
  env.push_back(nullptr);
  return env;
}

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

} // namespace

ProcessResult run_process(const std::vector<std::string>& args, int seconds) {
  ProcessResult result;
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return result;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
  posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // A process group of its own, so that the compiler's children die with it; default signals.
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> env = child_environment();
  pid_t pid = -1;
  int error = posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  ::close(fds[1]);
  if (error != 0) {
    ::close(fds[0]);
    result.output = fmt::format("cannot start {}: error {}", args[0], error);
    return result;
  }

  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  char buffer[4096];
  while (true) {
    auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    if (left <= 0) {
      result.timed_out = true;
      kill(-pid, SIGKILL);
      break;
    }
    pollfd p{fds[0], POLLIN, 0};
    int ready = poll(&p, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) continue;
    ssize_t got = read(fds[0], buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    if (result.output.size() < kMaxOutput) result.output.append(buffer, static_cast<size_t>(got));
  }
  ::close(fds[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!result.timed_out && WIFEXITED(status)) result.status = WEXITSTATUS(status);
  return result;
}

std::string find_compiler(const Toolchain& toolchain) {
  if (!toolchain.compiler.empty()) return on_path(toolchain.compiler);
  if (const char* cxx = std::getenv("TBX_CXX"); cxx && *cxx) return on_path(cxx);
  for (const char* name : {"c++", "g++", "clang++"})
    if (std::string path = on_path(name); !path.empty()) return path;
  return "";
}

const std::string& compiler_identity(const std::string& compiler) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  std::scoped_lock lock(mutex);
  auto [it, fresh] = known.try_emplace(compiler);
  if (fresh) {
    struct stat st {};
    std::error_code ec;
    fs::path real = fs::canonical(compiler, ec);
    if (ec || stat(real.c_str(), &st) != 0) return it->second;
    // Size and time of the binary say that it changed; asking for its version would cost a process per start.
    it->second = fmt::format("{} {} {}.{}", real.string(), st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
  }
  return it->second;
}

/// What $TBX_CXXFLAGS adds, separated by spaces: -fsanitize=address builds kernels that a sanitizer watches.
static std::vector<std::string> extra_flags() {
  std::vector<std::string> flags;
  const char* given = std::getenv("TBX_CXXFLAGS");
  std::istringstream text(given ? given : "");
  for (std::string flag; text >> flag;) flags.push_back(flag);
  return flags;
}

std::vector<std::string> compiler_flags(Isa isa) {
  const char* arch = isa == Isa::avx512 ? "-march=x86-64-v4"
                     : isa == Isa::avx2 ? "-march=x86-64-v3"
                                        : "-march=x86-64";
  // Signed integers wrap, memory has no types, floats are neither contracted nor reordered; traps and errno
  // are not observed. Loops are vectorised by us: the compiler's own attempts cost time and code size.
  std::vector<std::string> flags{"-std=c++20",
                                 "-O3",
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
