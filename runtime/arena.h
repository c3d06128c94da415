// The threads of a session: as many as it asks for, or fewer where the system gives no more.
#pragma once

#include <tbb/task_arena.h>

#include <functional>

namespace tbx::runtime {

class Arena {
public:
  /// Tries whether so many threads can be started; `threads()` says how many will be used.
  explicit Arena(int threads);
  int threads() const { return threads_; }
  /// Runs `work` in the arena. Where a thread cannot be started meanwhile, it runs once more from its
  /// beginning, as does everything in this process from then on, in the calling thread alone.
  template <class Work> void execute(Work&& work) {
    run(std::ref(work)); // a reference, so that nothing is allocated
  }

private:
  void run(const std::function<void()>& work);
  int threads_;
  tbb::task_arena arena_;
};

/// How many of `wanted` threads, the calling one among them, can run now. Threads that once ran together are
/// not tried again.
int startable_threads(int wanted);

} // namespace tbx::runtime
