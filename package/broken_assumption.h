// BrokenAssumption: the sizes of the last run that broke what a program assumes. The next run of those sizes
// begins with the program that takes less for granted, and none has to fail first.
#pragma once

#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/made_for.h"
#include "runtime/session.h"

namespace tbx::package {

class BrokenAssumption {
public:
  /// What to begin with.
  runtime::Assume assume_for(std::span<const runtime::RunTensor> inputs) const {
    if (!any_.load(std::memory_order_relaxed)) return runtime::Assume::broadcast_too;
    const std::lock_guard lock(mutex_);
    bool same = dims_.size() == inputs.size();
    for (size_t i = 0; same && i < inputs.size(); ++i) same = dims_[i] == inputs[i].dims;
    return same ? assume_ : runtime::Assume::broadcast_too;
  }

  /// A run of these sizes ended well with what assumes that.
  void note(std::span<const runtime::RunTensor> inputs, runtime::Assume assume) {
    const std::lock_guard lock(mutex_);
    dims_.clear();
    for (const runtime::RunTensor& t : inputs) dims_.push_back(t.dims);
    assume_ = assume;
    any_.store(true, std::memory_order_relaxed);
  }

private:
  std::atomic<bool> any_{false};
  mutable std::mutex mutex_;
  std::vector<std::vector<int64_t>> dims_;
  runtime::Assume assume_ = runtime::Assume::broadcast_too;
};

} // namespace tbx::package
