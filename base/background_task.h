// BackgroundTask: work that goes on behind the calls of the library. One thread of the process does it, one
// task after the other, and lives as long as there are any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace tbx {

class BackgroundTask {
public:
  /// Asks `stopped` often, and ends soon where that is true. It owns what it needs, throws nothing, and takes
  /// no lock that is held where a task is destroyed: that waits for it.
  using Work = std::function<void(const std::function<bool()>& stopped)>;

  /// nullptr where the system gives no thread.
  static std::unique_ptr<BackgroundTask> start(Work work);
  /// Work that has not begun is not done; work under way is stopped and waited for.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// All work is stopped, for good: of a handler of signals, before the process ends by one.
  static void stop_all() noexcept;

  /// This process was forked before the work was done: it is done in the other one alone.
  bool is_lost() const;

private:
  friend class BackgroundThread;
  BackgroundTask(Work work, int process) : work_(std::move(work)), process_(process) {}

  const Work work_;
  const int process_; ///< counts the forks on the way to it
  std::atomic<bool> stop_{false}, done_{false};
};

} // namespace tbx
