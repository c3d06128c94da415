// Budget: the time and memory that loading a model may take. Memory is counted where loading makes something
// of the model: tensors it computes, expressions, text of kernels.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/stop.h"

namespace tbx {

/// The way out of a limit: "raise max_nodes (tbx: --max-nodes) if the model is right".
std::string how_to_raise(std::string option);

/// Bytes taken and given back, with a limit. Shared by what took them, which may outlive the loading.
class Budget {
public:
  explicit Budget(int64_t limit) : limit_(limit) {}

  /// Throws Error (model) where that would be more than the limit.
  void take(int64_t bytes);
  void give_back(int64_t bytes) noexcept { used_ -= bytes; }
  int64_t peak() const { return peak_; }

private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0}, peak_{0};
};

/// The budget of the loading that this thread works for, or nullptr.
const std::shared_ptr<Budget>& current_budget();

/// Bytes of one owner, given back with it.
class Counted {
public:
  Counted() : budget_(current_budget()) {}
  ~Counted() {
    if (budget_) budget_->give_back(bytes_);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  void add(int64_t bytes) {
    if (!budget_) return;
    budget_->take(bytes);
    bytes_ += bytes;
  }

private:
  std::shared_ptr<Budget> budget_;
  int64_t bytes_ = 0;
};

/// This thread loads a model until the end of the scope: check_stop() looks at the time that it has, and what
/// is counted goes to its budget. 0: no limit.
class LoadScope {
public:
  LoadScope(int64_t limit_ms, int64_t memory);
  ~LoadScope();
  LoadScope(const LoadScope&) = delete;
  LoadScope& operator=(const LoadScope&) = delete;

  const Budget& budget() const { return *budget_; }

private:
  friend class OutsideOfLoad;
  friend int64_t waited_outside_ms();
  Stop stop_;
  std::chrono::steady_clock::duration outside_{};
  StopScope stop_scope_;
  std::shared_ptr<Budget> budget_, outer_budget_;
  LoadScope* outer_;
};

/// How long the loading that this thread works for has waited outside so far, in scopes that ended.
int64_t waited_outside_ms();

/// What this thread waits for until the end of the scope has limits of its own: the C++ compiler.
class OutsideOfLoad {
public:
  OutsideOfLoad() : start_(std::chrono::steady_clock::now()) {}
  ~OutsideOfLoad();
  OutsideOfLoad(const OutsideOfLoad&) = delete;
  OutsideOfLoad& operator=(const OutsideOfLoad&) = delete;

private:
  std::chrono::steady_clock::time_point start_;
};

/// For loops of short rounds: check_stop(), once in a while.
inline void check_stop_often() {
  thread_local unsigned rounds = 0;
  if ((++rounds & 255) == 0) check_stop();
}

} // namespace tbx
