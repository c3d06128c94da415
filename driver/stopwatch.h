// How long stages take.
#pragma once

#include <chrono>

namespace tbx::driver {

class Stopwatch {
public:
  /// Milliseconds since the last lap, or since the watch was made.
  double lap() {
    auto now = std::chrono::steady_clock::now();
    double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
    return ms;
  }

private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

} // namespace tbx::driver
