#include "base/fork.h"

#include <pthread.h>

#include <atomic>

#include "base/error.h"

namespace tbx {
namespace {

std::atomic<int> calls{0};
std::atomic<bool> cut_off{false};

void in_child() {
  if (calls.exchange(0) > 0) cut_off = true;
}

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, in_child);

} // namespace

CallScope::CallScope() {
  if (cut_off)
    throw Error(
        ErrorKind::backend,
        "this process was forked while another thread was in a call of tensorbox, and has neither that "
        "thread nor its workers",
        "fork while no call is under way, or start processes anew (multiprocessing: spawn or forkserver)");
  ++calls;
}

CallScope::~CallScope() {
  // In a process forked inside of this very call the count begins anew.
  if (!cut_off) --calls;
}

} // namespace tbx
