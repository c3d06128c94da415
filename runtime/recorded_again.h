// RecordedAgain: graphs that could not be changed for the sizes of a run, which costs that run the time of
// recording. Counted by step, for explain and the log.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace tbx::runtime {

class RecordedAgain {
public:
  /// True where nothing was said of the step before.
  bool add(size_t step, const std::string& why) const {
    std::scoped_lock lock(mutex_);
    Count& count = counts_[step];
    count.why = why;
    return ++count.times == 1;
  }
  /// Empty for a step that never was the cause.
  std::string text(size_t step) const;

private:
  struct Count {
    size_t times = 0;
    std::string why; ///< the last time
  };
  mutable std::mutex mutex_;
  mutable std::map<size_t, Count> counts_;
};

} // namespace tbx::runtime
