// The threads of a session: as many as it asks for, or fewer where the system gives no more.
#pragma once

#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>

#include <stdexcept>

#include "base/spare_memory.h"
#include "runtime/isolated.h"

namespace tbx::runtime {

class Arena {
public:
  /// Tries whether so many threads can be started; `threads()` says how many will be used.
  explicit Arena(int threads);
  int threads() const { return threads_; }
  /// Runs `work` in the arena. Where a thread cannot be started meanwhile, it runs once more from its
  /// beginning, as does everything in this process from then on, in the calling thread alone.
  template <class F> void execute(F&& work) {
    if (may_start_threads()) {
      try {
        arena_.execute([&] { isolated([&] { work(); }); });
        return;
      } catch (const std::runtime_error& e) {
        if (!gave_up(e)) throw;
      }
    }
    // One for each caller: who finds it taken would hand over the work, and the arena have a second thread.
    tbb::task_arena alone(1);
    alone.execute(work);
  }

private:
  static bool may_start_threads();
  /// The error is of a thread that did not start: no other is started from now on.
  static bool gave_up(const std::runtime_error& e);

  /// Notes which threads are workers: a fork waits until they sleep (base/fork.h).
  class Workers : public tbb::task_scheduler_observer {
  public:
    explicit Workers(tbb::task_arena& arena) : task_scheduler_observer(arena) {
      require_spare_memory();
      arena.initialize(); // or observe() does, and where that has no memory it cannot be taken back
      observe(true);
    }
    ~Workers() override { observe(false); }
    void on_scheduler_entry(bool is_worker) override;
  };

  int threads_;
  tbb::task_arena arena_;
  Workers workers_{arena_};
};

/// How many of `wanted` threads, the calling one among them, can run now. Threads that once ran together are
/// not tried again.
int startable_threads(int wanted);

} // namespace tbx::runtime
