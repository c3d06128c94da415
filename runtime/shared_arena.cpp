#include "runtime/shared_arena.h"

#include <unistd.h>

#include <mutex>

namespace tbx::runtime {
namespace {

struct Shared {
  std::mutex mutex;
  std::shared_ptr<Arena> arena;
  int threads = 0;
  pid_t process = 0;
};

} // namespace

std::shared_ptr<Arena> arena_for(const SessionOptions& options) {
  const int granted = default_threads(), threads = options.threads > 0 ? options.threads : granted;
  if (options.private_arena || threads != granted) return std::make_shared<Arena>(threads);
  static auto* shared = new Shared; // never destroyed: threads may still be in it while the process ends
  std::lock_guard lock(shared->mutex);
  // A forked process has none of the threads that were in the arena. OMP_NUM_THREADS may have changed.
  if (!shared->arena || shared->process != getpid() || shared->threads != granted) {
    shared->arena = std::make_shared<Arena>(granted);
    shared->process = getpid();
    shared->threads = granted;
  }
  return shared->arena;
}

} // namespace tbx::runtime
