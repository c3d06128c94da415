// Work of the host that threads share, and that ends when the run does.
#pragma once

#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/current_stop.h"
#include "base/stop.h"

namespace tbx::extern_kernels {

/// Calls work(begin, end) for ranges of [0, count), where there are so many not shorter than `grain`. In each
/// check_stop() looks at what the caller's thread looks at.
template <class F> void share(int64_t count, int64_t grain, F&& work) {
  const Stop* const stop = current_stop();
  tbb::parallel_for(tbb::blocked_range<int64_t>(0, count, static_cast<size_t>(grain)),
                    [&](const tbb::blocked_range<int64_t>& range) {
                      std::optional<StopScope> scope;
                      if (stop) scope.emplace(*stop);
                      work(range.begin(), range.end());
                    });
}

/// Calls task(i) for each i of [0, count), and looks at the time before.
template <class F> void for_each_task(int64_t count, F&& task) {
  share(count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      check_stop();
      task(i);
    }
  });
}

/// The same of many short ones, between some thousands of which it looks at the time.
template <class F> void for_each_number(int64_t count, F&& work) {
  constexpr int64_t kPiece = 1 << 14;
  for_each_task((count + kPiece - 1) / kPiece, [&](int64_t piece) {
    for (int64_t i = piece * kPiece, end = std::min(count, i + kPiece); i < end; ++i) work(i);
  });
}

} // namespace tbx::extern_kernels
