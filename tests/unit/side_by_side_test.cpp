#include "base/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace tbx {
namespace {

TEST(SideBySide, CallsEachPieceOnce) {
  for (size_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    const auto thrown = side_by_side(count, [&](size_t i) { ++calls[i]; });
    EXPECT_EQ(thrown.size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(calls[i], 1) << i << " of " << count;
    EXPECT_NO_THROW(rethrow_first(thrown));
  }
}

/// Each waits until the other has begun.
TEST(SideBySide, PiecesRunAtTheSameTime) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one thread";
  std::atomic<int> begun{0};
  std::atomic<bool> met{true};
  side_by_side(2, [&](size_t) {
    ++begun;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (begun < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (begun < 2) met = false;
  });
  EXPECT_TRUE(met);
}

TEST(SideBySide, GivesWhatWasThrownAndDoesTheRest) {
  std::atomic<int> done{0};
  const auto thrown = side_by_side(100, [&](size_t i) {
    if (i == 7 || i == 80) throw std::out_of_range(std::to_string(i));
    ++done;
  });
  EXPECT_EQ(done, 98);
  for (size_t i = 0; i < thrown.size(); ++i) EXPECT_EQ(thrown[i] != nullptr, i == 7 || i == 80) << i;
  try {
    rethrow_first(thrown);
    FAIL() << "nothing was thrown";
  } catch (const std::out_of_range& e) {
    EXPECT_STREQ(e.what(), "7");
  }
}

} // namespace
} // namespace tbx
