#include "codegen/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>

extern char** environ;

namespace tbx::codegen {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutput = 64 << 10;
constexpr int kPollMs = 50;
/// Niceness: beside a busy thread a compiler has a quarter of the processor, and comes to an end.
constexpr int kGivesWay = 5;

/// The child's environment: ours, except what would make the compiler's messages or results depend on the
/// user's set-up.
std::vector<std::string> child_environment(const Command& command) {
  std::vector<std::string> env;
  for (char** e = environ; *e; ++e) {
    std::string_view v = *e;
    bool drop = v.starts_with("LC_ALL=") || v.starts_with("CPATH=") || v.starts_with("CPLUS_INCLUDE_PATH=") ||
                v.starts_with("LD_PRELOAD=") || v.starts_with("GCC_EXEC_PREFIX=") ||
                v.starts_with("COMPILER_PATH=") ||
                (v.starts_with("TMPDIR=") && !command.temporary_folder.empty());
    if (!drop) env.emplace_back(v);
  }
  env.emplace_back("LC_ALL=C");
  if (!command.temporary_folder.empty()) env.push_back("TMPDIR=" + command.temporary_folder);
  return env;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (const std::string& t : texts) list.push_back(const_cast<char*>(t.c_str()));
  list.push_back(nullptr);
  return list;
}

/// Descriptors 0 to 2 are the child's own, and may be closed here.
int above_standard(int fd) {
  if (fd < 0 || fd > 2) return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  int error = errno;
  ::close(fd);
  errno = error;
  return moved;
}

/// All that the child needs, made before: it shares our memory until it becomes the other program.
struct Start {
  char** argv;
  char** env;
  int input, output;
  pid_t parent;
  ProcessLimits limits;
  int error = 0; ///< written by the child
};

void lower_limit(int which, rlim_t most) {
  rlimit r{};
  if (getrlimit(static_cast<__rlimit_resource>(which), &r) != 0) return;
  if (r.rlim_max != RLIM_INFINITY) most = std::min(most, r.rlim_max);
  if (r.rlim_cur != RLIM_INFINITY) most = std::min(most, r.rlim_cur);
  r.rlim_cur = r.rlim_max = most;
  setrlimit(static_cast<__rlimit_resource>(which), &r);
}

/// In the child: system calls only.
[[noreturn]] void become(Start& start) {
  setpgid(0, 0); // the compiler's own children die with it
  // And it with the thread that waits for it, whatever ends that.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int s = 1; s < NSIG; ++s) sigaction(s, &action, nullptr);
  umask(077); // nobody else is to change what it writes
  lower_limit(RLIMIT_CORE, 0);
  if (start.limits.gives_way) setpriority(PRIO_PROCESS, 0, kGivesWay);
  if (start.limits.memory > 0) lower_limit(RLIMIT_AS, static_cast<rlim_t>(start.limits.memory));
  // The time limit of the clock ends it while we live; this one, should we be killed.
  if (start.limits.time_ms > 0) lower_limit(RLIMIT_CPU, static_cast<rlim_t>(start.limits.time_ms / 1000 + 5));
  sigset_t none;
  sigemptyset(&none);
  if (dup2(start.input, 0) >= 0 && dup2(start.output, 1) >= 0 && dup2(start.output, 2) >= 0 &&
      getppid() == start.parent) {
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(start.argv[0], start.argv, start.env);
  }
  start.error = errno ? errno : ESRCH;
  _exit(127);
}

/// vfork: a large process is not copied, and limits can be set, which posix_spawn cannot.
[[gnu::noinline]] pid_t spawn(Start& start) {
  pid_t pid = vfork();
  if (pid == 0) become(start);
  return pid;
}

class Process {
public:
  Process(size_t number, const Command& command, const ProcessLimits& limits) : number(number) {
    if (limits.time_ms > 0) deadline_ = Clock::now() + std::chrono::milliseconds(limits.time_ms);
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
      error_ = errno;
      return;
    }
    output_ = above_standard(fds[0]);
    const int writes = above_standard(fds[1]);
    const int input = above_standard(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (output_ < 0 || writes < 0 || input < 0) {
      error_ = errno;
    } else {
      std::vector<std::string> texts = child_environment(command);
      std::vector<char*> argv = pointers(command.args), env = pointers(texts);
      Start start{argv.data(), env.data(), input, writes, getpid(), limits};
      // A handler of ours must not run in the child, in our memory.
      sigset_t all, before;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
      errno = 0;
      pid_ = spawn(start);
      error_ = pid_ < 0 ? errno : start.error;
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      if (pid_ > 0 && error_ != 0) wait();
    }
    if (writes >= 0) ::close(writes);
    if (input >= 0) ::close(input);
  }
  Process(const Process&) = delete;
  ~Process() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      wait();
    }
    if (output_ >= 0) ::close(output_);
  }

  int error() const { return error_; } ///< of the start; 0: it runs
  int output() const { return output_; }
  bool is_late() const { return deadline_ && Clock::now() >= *deadline_; }

  /// False at the end.
  bool read_some() {
    char buffer[4096];
    const ssize_t got = read(output_, buffer, sizeof buffer);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    if (got > 0 && result_.output.size() < kMaxOutput)
      result_.output.append(buffer, static_cast<size_t>(got));
    return got > 0;
  }
  ProcessResult finish() {
    result_.timed_out = is_late();
    if (result_.timed_out) kill(-pid_, SIGKILL);
    wait();
    return std::move(result_);
  }

  const size_t number;

private:
  void wait() {
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
    }
    result_.unknown = ended != pid_;
    if (ended == pid_ && !result_.timed_out && WIFEXITED(status)) result_.status = WEXITSTATUS(status);
    pid_ = -1;
  }

  pid_t pid_ = -1;
  int output_ = -1, error_ = 0;
  std::optional<Clock::time_point> deadline_;
  ProcessResult result_;
};

bool may_pass(int error) { return error == EAGAIN || error == ENOMEM || error == EMFILE || error == ENFILE; }

} // namespace

void run_processes(const std::vector<Command>& commands, int jobs, const ProcessLimits& limits,
                   const std::function<void(size_t, ProcessResult)>& ended,
                   const std::function<void()>& interrupted) {
  const Clock::time_point start = Clock::now();
  auto left = [&] {
    ProcessLimits now = limits;
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
    if (limits.time_ms > 0) now.time_ms = std::max<int64_t>(1, limits.time_ms - spent);
    return now;
  };
  std::vector<std::unique_ptr<Process>> running;
  size_t next = 0;
  int failures = 0;
  while (next < commands.size() || !running.empty()) {
    if (interrupted) interrupted();
    while (next < commands.size() && static_cast<int>(running.size()) < std::max(1, jobs)) {
      auto process = std::make_unique<Process>(next, commands[next], left());
      if (process->error() == 0) {
        running.push_back(std::move(process));
        failures = 0;
        ++next;
        continue;
      }
      constexpr int kAttempts = 6;
      if (may_pass(process->error()) && (!running.empty() || ++failures < kAttempts)) {
        // Fewer at a time; with none, what is short may be given back in a moment.
        jobs = std::max<int>(1, static_cast<int>(running.size()));
        if (running.empty()) usleep(2000u << failures);
        break;
      }
      ProcessResult result;
      result.output =
          fmt::format("cannot start {}: {}", commands[next].args[0], std::strerror(process->error()));
      ended(next++, std::move(result));
    }
    std::vector<pollfd> waiting;
    waiting.reserve(running.size());
    for (const auto& p : running) waiting.push_back({p->output(), POLLIN, 0});
    if (waiting.empty() || poll(waiting.data(), waiting.size(), kPollMs) < 0)
      for (pollfd& w : waiting) w.revents = 0; // interrupted by a signal: only the time counts
    for (size_t i = waiting.size(); i-- > 0;) {
      const bool at_end = waiting[i].revents != 0 && !running[i]->read_some();
      if (!at_end && !running[i]->is_late()) continue;
      std::unique_ptr<Process> done = std::move(running[i]);
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
      ended(done->number, done->finish());
    }
  }
}

ProcessResult run_process(const std::vector<std::string>& args, int seconds) {
  ProcessResult result;
  run_processes({{args, {}}}, 1, {int64_t{1000} * seconds, 0},
                [&](size_t, ProcessResult r) { result = std::move(r); });
  return result;
}

} // namespace tbx::codegen
