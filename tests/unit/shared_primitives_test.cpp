// What is asked of oneDNN once per process, whoever asks.
#include <gtest/gtest.h>
#include <tbb/task_arena.h>

#include "extern_kernels/onednn/primitives.h"

namespace tbx::extern_kernels::onednn {
namespace {

Implementation named(const char* name) {
  Implementation i;
  i.name = name;
  return i;
}

TEST(SharedAnswers, AreAskedForOncePerKeyAndNumberOfThreads) {
  int asked = 0;
  auto ask = [&](int64_t key, int threads) {
    return tbb::task_arena(threads).execute([&] {
      return shared_answer(Key().add(-20261126).add(key), [&] {
        ++asked;
        return named(key == 1 ? "one" : "other");
      });
    });
  };
  const auto first = ask(1, 1), again = ask(1, 1);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(first, again);
  EXPECT_EQ(ask(2, 1)->name, "other");
  EXPECT_EQ(ask(1, 2)->name, "one");
  EXPECT_EQ(asked, 3);
}

TEST(SharedAnswers, ThatFailAreAskedForAgain) {
  const auto fail = []() -> Implementation { throw dnnl::error(dnnl_unimplemented, "none"); };
  Key key;
  key.add(-20261127);
  EXPECT_THROW(shared_answer(key, fail), dnnl::error);
  EXPECT_EQ(shared_answer(key, [] { return named("found"); })->name, "found");
}

} // namespace
} // namespace tbx::extern_kernels::onednn
