// Random streams: where the random operators of a session get the seeds of their draws from.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace tbx {

/// One stream per node. Every draw of a node, in whatever run or iteration, is the next of its stream, so no
/// two are the same. Callable from many threads at once.
class RandomStreams {
public:
  /// Equal seeds give equal streams.
  explicit RandomStreams(uint64_t seed) : seed_(seed) {}
  RandomStreams(const RandomStreams&) = delete;

  /// The seed of the next draw of `stream`. `fixed`: the seed that the model gives the node, of which its
  /// numbers follow then instead of the seed of this.
  uint64_t next(uint64_t stream, std::optional<uint64_t> fixed);

private:
  const uint64_t seed_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, uint64_t> draws_; ///< by stream
};

/// A seed from the operating system.
uint64_t fresh_seed();

/// Makes `streams` what next_seed() of this thread draws from, until the end of the scope: kernels are called
/// through interfaces that have no place for it. nullptr: what was there stays.
class RandomScope {
public:
  explicit RandomScope(RandomStreams* streams);
  ~RandomScope();
  RandomScope(const RandomScope&) = delete;
  RandomScope& operator=(const RandomScope&) = delete;

private:
  RandomStreams* outer_;
};

/// Those of the innermost RandomScope of this thread; nullptr: there is none.
RandomStreams* current_streams();

/// RandomStreams::next of the run that this thread works for; outside of one, of streams of the process.
uint64_t next_seed(uint64_t stream, std::optional<uint64_t> fixed);

} // namespace tbx
