// Which steps computed what a step reads: parts of one buffer, results in place, inputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/sources.h"

namespace tbx::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A kernel that reads some buffers and writes one.
runtime::Step step(std::vector<int> reads, int writes) {
  runtime::KernelStep kernel;
  kernel.buffers = std::move(reads);
  kernel.writes.assign(kernel.buffers.size(), false);
  kernel.buffers.push_back(writes);
  kernel.writes.push_back(true);
  return {kernel, {}, runtime::DeviceKind::cpu};
}

TEST(Sources, AreWhoWroteLast) {
  runtime::Executable plan;
  plan.buffers.resize(4);
  plan.steps = {step({0}, 1),       step({0}, 1), // two parts of buffer 1
                step({1, -1}, 2),   step({2}, 2), // the second in place
                step({2, 1, 2}, 3), {runtime::CopyStep{3, 0}, {}, runtime::DeviceKind::cpu}};
  const std::vector<std::vector<int>> sources = runtime::sources_of(plan);
  ASSERT_EQ(sources.size(), 6u);
  EXPECT_THAT(sources[0], IsEmpty());
  EXPECT_THAT(sources[1], IsEmpty());
  EXPECT_THAT(sources[2], ElementsAre(0, 1));
  EXPECT_THAT(sources[3], ElementsAre(2));
  EXPECT_THAT(sources[4], ElementsAre(0, 1, 3));
  EXPECT_THAT(sources[5], ElementsAre(4));
  EXPECT_THAT(runtime::sources_of({}), IsEmpty());
}

} // namespace
} // namespace tbx::test
