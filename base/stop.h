// When to stop: a limit of time, a flag of the caller and what it answers, looked at by whatever may take
// long.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tbx {

struct Stop {
  const std::atomic<bool>* cancel = nullptr; ///< set by another thread
  int64_t limit_ms = 0;                      ///< 0: none
  std::chrono::steady_clock::time_point start{};
  const char* what = "the run"; ///< that has the limit, and the option that raises it
  const char* option = "time_limit_ms";
  bool (*asked)() = nullptr; ///< true: it is time. No reason to cut long work into pieces

  bool active() const { return cancel != nullptr || limit_ms > 0; }
  /// Throws Error (model) when it is time.
  void check() const;
};

/// Makes `stop` what check_stop() of this thread looks at, until the end of the scope: kernels are called
/// through interfaces that have no place for it.
class StopScope {
public:
  explicit StopScope(const Stop& stop);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

private:
  const Stop* outer_;
};

/// Throws Error (model) when what this thread works for, a run or the loading of a model, is to end.
void check_stop();

} // namespace tbx
