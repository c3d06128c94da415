// Which steps wait for which: against all pairs of steps that meet in memory. Sessions whose steps run side
// by side, on the fake device, which draws the order of a graph anew for every start.
#include "runtime/step_order.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <random>

#include "device/device.h"
#include "device/fake/fake_device.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/onnx_text.h"

namespace tbx::test {
namespace {

using runtime::Access;
using testing::ElementsAre;
using testing::IsEmpty;

Access access(size_t begin, size_t end, bool writes) {
  static std::byte memory[1000];
  return {memory + begin, memory + end, writes};
}

TEST(StepOrder, FollowsWhatStepsReadAndWrite) {
  const std::vector<std::vector<Access>> steps = {
      {access(0, 10, true)},                         // 0
      {access(0, 10, false), access(10, 20, true)},  // 1 reads it
      {access(0, 5, false), access(20, 30, true)},   // 2 reads it, too
      {access(15, 25, false), access(40, 50, true)}, // 3 reads both results
      {access(9, 10, true)},                         // 4 has a place that 1 read
      {},                                            // 5
      {access(0, 0, true), access(60, 60, true)},    // 6 touches nothing
  };
  EXPECT_THAT(runtime::order_of(steps), ElementsAre(IsEmpty(), ElementsAre(0), ElementsAre(0),
                                                    ElementsAre(2, 1), ElementsAre(1), IsEmpty(), IsEmpty()));
  EXPECT_THAT(runtime::order_of({}), IsEmpty());
}

TEST(StepOrder, HasAllAndNoMore) {
  std::mt19937 random(5);
  for (const size_t count : {1, 2, 63, 64, 65, 130}) {
    std::vector<std::vector<Access>> steps(count);
    for (auto& step : steps)
      for (int a = 0; a < 3; ++a) {
        const size_t begin = random() % 300;
        step.push_back(access(begin, begin + random() % 20, random() % 3 == 0));
      }
    std::vector<std::vector<bool>> waits(count, std::vector<bool>(count)), reached = waits;
    for (size_t s = 0; s < count; ++s)
      for (size_t t = 0; t < s; ++t)
        for (const Access& a : steps[s])
          for (const Access& b : steps[t])
            if ((a.writes || b.writes) && a.begin < b.end && b.begin < a.end) waits[s][t] = true;
    auto close = [&](auto& of) { // whoever waits for a step waits for all that it waits for
      for (size_t s = 0; s < count; ++s)
        for (size_t t = s; t-- > 0;)
          if (of[s][t])
            for (size_t u = 0; u < t; ++u) of[s][u] = of[s][u] || of[t][u];
    };
    const auto order = runtime::order_of(steps);
    for (size_t s = 0; s < count; ++s)
      for (size_t t : order[s]) {
        ASSERT_LT(t, s);
        reached[s][t] = true;
      }
    const auto direct = reached;
    close(waits), close(reached);
    EXPECT_EQ(reached, waits) << count;
    for (size_t s = 0; s < count; ++s) // none that follows from another
      for (size_t t : order[s])
        for (size_t u : order[s]) EXPECT_FALSE(u > t && reached[u][t]) << s << ": " << t << ", " << u;
  }
}

class Forks : public testing::Test {
protected:
  void SetUp() override {
    setenv("TBX_FAKE_CUDA", "1", 1);
    setenv("TBX_CUDA_FORKS", "1", 1);
  }
  void TearDown() override {
    unsetenv("TBX_FAKE_CUDA");
    unsetenv("TBX_CUDA_FORKS");
  }

  /// Branches that take each other's places in the arena, and a sum of all.
  static std::string model() {
    const char* const functions[] = {"Sin", "Cos", "Tanh", "Neg", "Sigmoid"}; // no two branches are the same
    std::string text, sum = "x";
    for (int k = 0; k < 5; ++k) {
      auto n = [k](const char* name) { return name + std::to_string(k); };
      text += n("u") + " = " + functions[k] + " (" + (k == 3 ? "b0" : "x") + ") " + n("t") +
              " = Transpose <perm = [0, 2, 1]> (" + n("u") + ") " + n("m") + " = MatMul (" + n("t") +
              ", x) " + n("p") + " = Softmax <axis = 1> (" + n("m") + ") " + n("b") + " = MatMul (x, " +
              n("p") + ") " + n("s") + " = Add (" + sum + ", " + n("b") + ") ";
      sum = n("s");
    }
    return to_bytes(parse_graph("g (float[n, 9, 9] x) => (float[n, 9, 9] y, float[n, 9, 9] z) { " + text +
                                "y = Tanh (" + sum + ") z = Softmax <axis = 1> (b1) }"));
  }
  static Session session() {
    CompileOptions options;
    options.device = "cuda";
    const std::string bytes = model();
    return Session::compile(std::as_bytes(std::span(bytes)), options).value();
  }
  static device::FakeCounts counts() { return device::counts_of(*device::open("cuda")); }

  /// Of both outputs.
  static std::vector<float> results(const Session& s, int64_t n) {
    std::vector<float> x(static_cast<size_t>(n) * 81), all;
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(0.3f * static_cast<float>(i));
    for (const OutputTensor& out : s.run({{"x", TensorView::of(x, {n, 9, 9})}}).value()) {
      const auto values = out.values<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
};

TEST_F(Forks, GiveTheSameBitsInEveryOrder) {
  const Session s = session();
  const device::FakeCounts before = counts();
  for (int64_t n : {0, 1, 3, 17}) {
    const std::vector<float> expected = results(s, n); // one step after the other
    for (int turn = 0; turn < 20; ++turn) ASSERT_EQ(results(s, n), expected) << n << ", turn " << turn;
  }
  const device::FakeCounts after = counts();
  EXPECT_GE(after.started - before.started, 3u * 19u);
  EXPECT_GE(after.forked - before.forked, 3u * 2u);
}

TEST_F(Forks, AreAskedFor) {
  unsetenv("TBX_CUDA_FORKS");
  const Session s = session();
  const size_t before = counts().forked;
  for (int turn = 0; turn < 3; ++turn) results(s, 2);
  EXPECT_EQ(counts().forked, before + 1); // the copy of the second output, which waits for no other copy
}

} // namespace
} // namespace tbx::test
