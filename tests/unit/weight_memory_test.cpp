// Memory of packed weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "base/watch.h"
#include "base/weight_memory.h"

namespace tbx {
namespace {

struct Block {
  std::shared_ptr<void> memory;
  int64_t bytes;
  unsigned char filled_with;
  bool is_whole() const {
    const auto* p = static_cast<const unsigned char*>(memory.get());
    for (int64_t i = 0; i < bytes; ++i)
      if (p[i] != filled_with) return false;
    return true;
  }
};

Block block(int64_t bytes, unsigned char with) {
  Block b{allocate_weights(bytes), bytes, with};
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.memory.get()) % 64, 0u);
  std::memset(b.memory.get(), with, static_cast<size_t>(bytes));
  return b;
}

TEST(WeightMemory, BlocksAreTheirOwn) {
  std::vector<Block> blocks;
  std::mt19937 random(1);
  unsigned char with = 0;
  for (int64_t bytes :
       {0, 1, 63, 64, 65, 16383, 16384, 16385, 100'000, 1 << 20, 3'000'001, 8 << 20, (8 << 20) + 1})
    for (int i = 0; i < 4; ++i) blocks.push_back(block(bytes, ++with));
  for (int round = 0; round < 200; ++round) {
    Block& b = blocks[random() % blocks.size()];
    ASSERT_TRUE(b.is_whole()) << b.bytes;
    b = block(static_cast<int64_t>(random() % 500'000), ++with); // the old one goes
  }
  for (const Block& b : blocks) EXPECT_TRUE(b.is_whole()) << b.bytes;
}

TEST(WeightMemory, SeveralThreadsAskForIt) {
  std::vector<std::vector<Block>> all(4);
  {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < all.size(); ++t)
      threads.emplace_back([&mine = all[t], t] {
        for (int i = 0; i < 100; ++i)
          mine.push_back(block(20'000 + 1000 * i, static_cast<unsigned char>(t * 61 + i)));
      });
  }
  for (const auto& mine : all)
    for (const Block& b : mine) EXPECT_TRUE(b.is_whole());
}

/// Whoever asks without doing anything else meets others who do, too.
TEST(WeightMemory, BlocksOfThreadsDoNotMeet) {
  constexpr int64_t kSize = 16 << 10, kCount = 1000;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<std::shared_ptr<void>>> all(4);
    std::atomic<size_t> ready{0};
    {
      std::vector<std::jthread> threads;
      for (auto& mine : all)
        threads.emplace_back([&] {
          mine.reserve(kCount);
          for (++ready; ready < all.size();) std::this_thread::yield();
          for (int64_t i = 0; i < kCount; ++i) mine.push_back(allocate_weights(kSize));
        });
    }
    std::vector<uintptr_t> begins;
    for (const auto& mine : all)
      for (const auto& b : mine) begins.push_back(reinterpret_cast<uintptr_t>(b.get()));
    std::sort(begins.begin(), begins.end());
    for (size_t i = 1; i < begins.size(); ++i) ASSERT_GE(begins[i] - begins[i - 1], uintptr_t{kSize}) << i;
  }
}

struct Used {
  int64_t reserved, resident; ///< bytes of the process
};

Used memory_used() {
  std::ifstream statm("/proc/self/statm");
  Used used{};
  statm >> used.reserved >> used.resident;
  return {used.reserved * 4096, used.resident * 4096};
}
int64_t resident_bytes() { return memory_used().resident; }

TEST(WeightMemory, SmallModelsTakeSmallPieces) {
  if (is_watched()) GTEST_SKIP() << "the sanitizer has the memory";
  const int64_t before = memory_used().reserved;
  const auto first = allocate_weights(20'000);
  const int64_t little = memory_used().reserved - before;
  EXPECT_LT(little, 8 << 20);
  std::vector<std::shared_ptr<void>> rest;
  for (int i = 0; i < 100; ++i) rest.push_back(allocate_weights(1'000'000));
  EXPECT_GT(memory_used().reserved - before, 100'000'000);
  EXPECT_LT(memory_used().reserved - before, 200'000'000) << "pieces are no larger than all before them";
}

TEST(WeightMemory, LargeBlocksBeginHugePages) {
  if (is_watched()) GTEST_SKIP() << "the sanitizer has the memory";
  const auto first = allocate_weights(1 << 20);
  for (int64_t bytes : {4 << 20, 5'000'000, 8 << 20})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(allocate_weights(bytes).get()) % (2 << 20), 0u) << bytes;
}

TEST(WeightMemory, GoesBackWithTheLastBlock) {
  if (is_watched()) GTEST_SKIP() << "the sanitizer keeps what is freed";
  const int64_t before = resident_bytes(), size = 2'400'000, count = 60;
  std::vector<Block> blocks;
  for (int i = 0; i < count; ++i) blocks.push_back(block(size, 7));
  EXPECT_GT(resident_bytes() - before, size * count * 9 / 10);
  EXPECT_LT(resident_bytes() - before, size * count + (8 << 20));
  blocks.clear();
  EXPECT_LT(resident_bytes() - before, 8 << 20);
}

TEST(Memory, PagesGoBack) {
  if (is_watched()) GTEST_SKIP() << "the sanitizer keeps what is freed";
  for (Pages pages : {Pages::small, Pages::huge})
    for (int64_t bytes : {1, 4096, 2 << 20, 30'000'001}) {
      const int64_t before = resident_bytes();
      auto memory = allocate_pages(bytes, pages);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % 64, 0u);
      std::memset(memory.get(), 1, static_cast<size_t>(bytes) + 64);
      memory.reset();
      EXPECT_LT(resident_bytes() - before, 1 << 20);
    }
}

} // namespace
} // namespace tbx
