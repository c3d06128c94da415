#include "base/random_streams.h"

#include <unistd.h>

#include <random>

namespace tbx {
namespace {

thread_local RandomStreams* current = nullptr;

/// The last step of SplitMix64 (Steele et al., "Fast splittable pseudorandom number generators", 2014): equal
/// results for equal arguments only, and no likeness between those of neighbours.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

} // namespace

uint64_t RandomStreams::next(uint64_t stream, std::optional<uint64_t> fixed) {
  uint64_t draw = 0;
  {
    std::lock_guard lock(mutex_);
    draw = draws_[stream]++;
  }
  const uint64_t start = fixed ? mix(*fixed) : mix(mix(seed_) ^ stream);
  return mix(start + draw);
}

uint64_t fresh_seed() {
  uint64_t seed = 0;
  if (::getentropy(&seed, sizeof seed) == 0) return seed;
  std::random_device device; // which asks the processor what it can: slow in virtual machines
  return uint64_t{device()} << 32 | device();
}

RandomScope::RandomScope(RandomStreams* streams) : outer_(current) {
  if (streams) current = streams;
}
RandomScope::~RandomScope() { current = outer_; }

RandomStreams* current_streams() { return current; }

uint64_t next_seed(uint64_t stream, std::optional<uint64_t> fixed) {
  if (current) return current->next(stream, fixed);
  static RandomStreams process(fresh_seed());
  return process.next(stream, fixed);
}

} // namespace tbx
