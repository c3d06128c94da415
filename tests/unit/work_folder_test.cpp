// Folders for compilers that many sessions make, use and remove at once in one cache.
#include "codegen/work_folder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "../support/temporary_folder.h"
#include "base/error.h"

namespace tbx::codegen {
namespace {

/// Each one that begins removes what others left, and may meet a folder that is made, but not locked yet.
TEST(WorkFolder, ManyAtOnce) {
  const std::filesystem::path parent = test::temporary_folder("tbx-work");
  std::atomic<int> failed{0}, lost{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        try {
          const WorkFolder folder(parent);
          std::ofstream(folder.path() / "unit0.cpp") << "//";
          lost += !std::filesystem::exists(folder.path() / "unit0.cpp");
        } catch (const Error&) {
          ++failed;
        }
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(std::filesystem::is_empty(parent));
  std::filesystem::remove_all(parent);
}

} // namespace
} // namespace tbx::codegen
