// Random numbers of the fuzzers: a seed costs nothing, since there is one for each input.
#pragma once

#include <cstdint>
#include <limits>

namespace tbx::fuzz {

/// SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014).
class Random {
public:
  using result_type = uint64_t;
  explicit Random(uint64_t seed = 0) : state_(seed) {}
  void seed(uint64_t seed) { state_ = seed; }
  uint64_t operator()() {
    uint64_t x = state_ += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }

private:
  uint64_t state_;
};

} // namespace tbx::fuzz
