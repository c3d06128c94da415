#include "runtime/arena.h"

#include <tbb/global_control.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "base/fork.h"

namespace tbx::runtime {

namespace {

std::atomic<bool> no_more_threads{false};

/// oneTBB starts its threads where work first appears, also from threads of its own, where a failure ends the
/// process. Once one failed it must start no other.
void give_up_threads() {
  static std::once_flag once;
  std::call_once(once, [] {
    no_more_threads = true;
    // Never destroyed: it holds until the process ends.
    new tbb::global_control(tbb::global_control::max_allowed_parallelism, 1);
  });
}

} // namespace

int startable_threads(int wanted) {
  static std::mutex mutex;
  static int proven = 1;
  std::unique_lock lock(mutex);
  if (no_more_threads) return 1;
  if (wanted <= proven) return wanted;
  std::vector<std::thread> threads;
  std::mutex end_mutex;
  std::condition_variable end;
  bool ended = false;
  try {
    // They wait for each other: it counts how many there can be at a time.
    for (int i = 1; i < wanted; ++i)
      threads.emplace_back([&] {
        std::unique_lock waiting(end_mutex);
        end.wait(waiting, [&] { return ended; });
      });
  } catch (const std::system_error&) {
  } catch (const std::bad_alloc&) {
  }
  {
    std::scoped_lock ending(end_mutex);
    ended = true;
  }
  end.notify_all();
  for (std::thread& t : threads) t.join();
  const int started = 1 + static_cast<int>(threads.size());
  proven = std::max(proven, started);
  return started;
}

Arena::Arena(int threads) : threads_(startable_threads(threads)), arena_(threads_) {}

void Arena::Workers::on_scheduler_entry(bool is_worker) {
  if (is_worker) note_worker_thread();
}

bool Arena::may_start_threads() { return !no_more_threads; }

bool Arena::gave_up(const std::runtime_error& e) {
  // oneTBB says it in these words, with no type of its own.
  if (std::strncmp(e.what(), "pthread_create", 14) != 0) return false;
  give_up_threads();
  return true;
}

} // namespace tbx::runtime
