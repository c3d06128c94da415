#include "tools/interrupt.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>

#include "driver/next_tier.h"

namespace tbx::tools {

namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
constexpr long kMicroseconds = 300'000; ///< to stop compilers and remove files
std::atomic<int> caught{0};

void end_now(int) {
  signal(caught, SIG_DFL);
  raise(caught);
}

/// The thread that waits for compilers asks; should none, an alarm ends the process.
void on_signal(int number) {
  if (caught.exchange(number) != 0) return end_now(number); // asked twice
  driver::stop_compilers();                                 // those behind a run
  signal(SIGALRM, end_now);
  const itimerval soon{{0, 0}, {0, kMicroseconds}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}

} // namespace

void open_standard_files() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= 2) fd = open("/dev/null", O_RDWR);
  if (fd > 2) close(fd);
}

void handle_signals() {
  for (int number : kSignals) {
    struct sigaction old {};
    if (sigaction(number, nullptr, &old) != 0 || old.sa_handler == SIG_IGN) continue; // nohup
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
}

bool interrupted() { return caught != 0; }

void end_by_signal() {
  if (caught != 0) end_now(caught);
}

} // namespace tbx::tools
