// What a library took for the sizes seen so far, each once. For explain.
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace tbx::extern_kernels::cuda {

inline constexpr const char* kLargerWorkspace = "operands whose alignment asks for a larger workspace";

class Notes {
public:
  void add(const std::string& text) const {
    constexpr size_t kMost = 64;
    std::scoped_lock lock(mutex_);
    if (all_.size() < kMost && std::find(all_.begin(), all_.end(), text) == all_.end()) all_.push_back(text);
  }
  std::vector<std::string> all() const {
    std::scoped_lock lock(mutex_);
    return all_;
  }

private:
  mutable std::mutex mutex_;
  mutable std::vector<std::string> all_;
};

} // namespace tbx::extern_kernels::cuda
