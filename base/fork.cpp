#include "base/fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace tbx {
namespace {

std::atomic<int> calls{0};
std::atomic<int> forks{0}; ///< under way in this process: no call begins meanwhile
std::atomic<bool> cut_off{false};
thread_local bool child_is_cut_off = false; ///< of the fork that this thread is in

constexpr size_t kMostWorkers = 4096;
std::array<std::atomic<pid_t>, kMostWorkers> workers{}; ///< 0: free

/// A thread's place among `workers`.
class WorkerThread {
public:
  WorkerThread() {
    const auto self = static_cast<pid_t>(syscall(SYS_gettid));
    for (std::atomic<pid_t>& place : workers)
      if (pid_t none = 0; place.compare_exchange_strong(none, self)) {
        place_ = &place;
        return;
      }
  }
  ~WorkerThread() {
    if (place_) *place_ = 0;
  }
  WorkerThread(const WorkerThread&) = delete;
  WorkerThread& operator=(const WorkerThread&) = delete;

private:
  std::atomic<pid_t>* place_ = nullptr;
};

/// Between fork and exec of somebody else nothing may allocate, so neither does this. A thread that cannot be
/// looked at is taken to sleep: it has ended, or there is no /proc.
bool sleeps(pid_t thread) {
  char text[512];
  std::snprintf(text, sizeof text, "/proc/self/task/%d/stat", thread);
  const int file = open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return true;
  const ssize_t n = read(file, text, sizeof text - 1);
  close(file);
  if (n <= 0) return true;
  text[n] = 0;
  const char* state = std::strrchr(text, ')'); // behind the name: "12 (name) S ..."
  return !state || state[1] == 0 || state[2] == 'S';
}

/// All of them at a time hold no lock that one of them could wait for: who holds one is awake.
bool workers_sleep() {
  return std::all_of(workers.begin(), workers.end(), [](const std::atomic<pid_t>& place) {
    const pid_t thread = place;
    return thread == 0 || sleeps(thread);
  });
}

void before_fork() {
  ++forks;
  child_is_cut_off = calls > 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!child_is_cut_off && !workers_sleep()) {
    child_is_cut_off = std::chrono::steady_clock::now() > end;
    const timespec pause{0, 50'000};
    nanosleep(&pause, nullptr);
  }
}

void in_parent() {
  --forks;
  forks.notify_all();
}

void in_child() {
  forks = 0;
  calls = 0;
  for (std::atomic<pid_t>& place : workers) place = 0;
  if (child_is_cut_off) cut_off = true;
}

[[maybe_unused]] const int registered = pthread_atfork(before_fork, in_parent, in_child);

} // namespace

CallScope::CallScope() {
  if (cut_off)
    throw Error(
        ErrorKind::backend,
        "this process was forked while another thread was in a call of tensorbox, and has neither that "
        "thread nor its workers",
        "fork while no call is under way, or start processes anew (multiprocessing: spawn or forkserver)");
  for (++calls; forks > 0; ++calls) {
    --calls;
    for (int n = forks; n > 0; n = forks) forks.wait(n);
  }
}

CallScope::~CallScope() {
  // In a process forked inside of this very call the count begins anew.
  if (!cut_off) --calls;
}

void note_worker_thread() { static thread_local const WorkerThread self; }

} // namespace tbx
