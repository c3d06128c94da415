#include "base/side_by_side.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

namespace tbx {

std::vector<std::exception_ptr> side_by_side(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<size_t> next{0};
  auto take = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        work(i);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> threads;
    const size_t most = std::min<size_t>(count, std::max(1u, std::thread::hardware_concurrency()));
    try {
      for (size_t t = 1; t < most; ++t) threads.emplace_back(take);
    } catch (const std::system_error&) { // fewer do it
    }
    take();
  }
  return thrown;
}

void rethrow_first(const std::vector<std::exception_ptr>& thrown) {
  for (const std::exception_ptr& e : thrown)
    if (e) std::rethrow_exception(e);
}

} // namespace tbx
