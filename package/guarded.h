// Where exceptions become Results.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <utility>

#include "base/fork.h"
#include "base/stack.h"
#include "runtime/isolated.h"
#include "tensorbox/tensorbox.h"

namespace tbx::package {

/// What ends the runs that this thread begins (CancelScope). Null: nothing.
struct EndOfRuns {
  const std::atomic<bool>* cancel = nullptr;
  bool (*asked)() = nullptr;
};
extern constinit thread_local EndOfRuns ends_runs;

Failure failure_of(const std::exception& e);

/// What `f` gives, or why it failed.
template <class F> auto guarded(F&& f) -> Result<decltype(f())> {
  try {
    CallScope call;
    std::optional<decltype(f())> result;
    const EndOfRuns end = ends_runs;
    // A caller may be a task itself, of many that use one session: they wait for locks of each other.
    with_stack([&] {
      ends_runs = end; // it may be another thread
      runtime::isolated([&] { result.emplace(f()); });
    });
    return std::move(*result);
  } catch (const std::exception& e) {
    return failure_of(e);
  }
}

/// Why `f` failed; nothing where it did not.
template <class F> std::optional<Failure> failure(F&& f) {
  const Result<bool> done = guarded([&] {
    f();
    return true;
  });
  return done ? std::nullopt : std::optional(done.error());
}

} // namespace tbx::package
