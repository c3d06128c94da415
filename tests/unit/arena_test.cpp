// Threads of sessions: one process-wide arena, and private ones on request. Threads are counted in kernels.
#include <gtest/gtest.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "base/stack.h"
#include "runtime/arena.h"
#include "runtime/bind.h"
#include "runtime/session.h"
#include "runtime/verify.h"
#include "tensorbox/tensorbox.h"
#include "tests/support/onnx_text.h"

namespace tbx::test {
namespace {

/// Counts the threads that are in it at once.
class Counted : public runtime::EvaluatedKernel {
public:
  /// Who is in the kernel stays until `enough(inside)`, or for some turns.
  Counted(std::atomic<int>& most, std::function<bool(int)> enough, std::chrono::seconds longest)
      : most_(most), enough_(std::move(enough)), longest_(longest) {}

  void run(std::span<void* const>, std::span<const int64_t>, int64_t, int64_t) const override {
    int inside = ++inside_;
    for (int seen = most_; inside > seen && !most_.compare_exchange_weak(seen, inside);) {
    }
    const auto end = std::chrono::steady_clock::now() + longest_;
    int turn = 0;
    while (!gave_up_ && !enough_(most_) && (turn++ < 50 || std::chrono::steady_clock::now() < end))
      std::this_thread::yield();
    if (longest_.count() > 0 && !enough_(most_)) gave_up_ = true;
    --inside_;
  }

private:
  std::atomic<int>& most_;
  std::function<bool(int)> enough_;
  std::chrono::seconds longest_;
  mutable std::atomic<int> inside_{0};
  mutable std::atomic<bool> gave_up_{false};
};

class OneKernel : public runtime::Module {
public:
  explicit OneKernel(std::shared_ptr<const runtime::EvaluatedKernel> kernel) : kernel_(std::move(kernel)) {}
  runtime::Kernel kernel(const std::string&) const override { return {nullptr, kernel_}; }

private:
  std::shared_ptr<const runtime::EvaluatedKernel> kernel_;
};

runtime::SizeExpr number(int64_t n) { return {{{runtime::SizeExpr::Code::push, n}}}; }

/// One kernel of 16 dear tasks that writes the only output.
std::shared_ptr<const runtime::Executable> one_kernel() {
  runtime::Executable e;
  runtime::BufferPlan y;
  y.dtype = DType::f32;
  y.sizes = {number(1)};
  y.strides = {number(1)};
  y.storage = runtime::StorageKind::output;
  y.index = y.first_step = y.last_step = 0;
  e.buffers = {y};
  e.outputs = {{"y", DType::f32, {"1"}, {number(1)}, 0}};
  runtime::KernelStep step;
  step.name = "count";
  step.buffers = {0};
  step.writes = {true};
  step.offset_bytes = {0};
  step.tasks = number(16);
  step.scratch_bytes = step.state_bytes = number(0);
  step.cost_per_task = 1e6;
  e.steps = {{step, {}}};
  runtime::verify(e);
  return std::make_shared<const runtime::Executable>(std::move(e));
}

/// Runs `callers` sessions, each from a thread of its own, and gives the most threads that were in the kernel
/// at once.
int most_threads(int callers, const runtime::SessionOptions& options, const std::function<bool(int)>& enough,
                 std::chrono::seconds longest) {
  std::atomic<int> most{0};
  auto bound = runtime::bind(one_kernel(),
                             {std::make_shared<OneKernel>(std::make_shared<Counted>(most, enough, longest))});
  std::vector<std::thread> threads;
  for (int t = 0; t < callers; ++t)
    threads.emplace_back([&] {
      runtime::Session session(bound, options);
      std::vector<runtime::RunTensor> out(1);
      session.run({}, out);
    });
  for (std::thread& t : threads) t.join();
  return most;
}

TEST(Arena, SessionsShareTheThreadsOfTheMachine) {
  const int granted = runtime::default_threads();
  if (granted == 1) GTEST_SKIP() << "callers that have one thread work on their own";
  const int most = most_threads(
      granted + 3, {}, [&](int seen) { return seen > granted; }, std::chrono::seconds(0));
  EXPECT_LE(most, granted);
  EXPECT_GE(most, 1);
}

TEST(Arena, APrivateOneHasThreadsOfItsOwn) {
  const int callers = runtime::default_threads() + 3;
  runtime::SessionOptions options;
  options.private_arena = true;
  const int most = most_threads(
      callers, options, [&](int seen) { return seen >= callers; }, std::chrono::seconds(60));
  EXPECT_GE(most, callers) << "each caller works in an arena of its own";
}

/// Loads y = -x and runs it in a new thread. Whether oneTBB has heard of the thread by then.
bool enters_an_arena(int64_t elements) {
  const std::string model = to_bytes(parse_graph("g (float[n] x) => (float[n] y) { y = Neg (x) }"));
  bool heard = false;
  std::thread([&] {
    // Sessions work on a thread with more stack where a caller has little, as for sanitizers.
    with_stack([&] {
      CompileOptions options;
      options.compile = false;
      const Session session = Session::compile(std::as_bytes(std::span(model)), options).value();
      std::vector<float> x(elements);
      for (int64_t i = 0; i < elements; ++i) x[i] = static_cast<float>(i % 1001) - 500;
      for (int run = 0; run < 2; ++run) {
        const auto y = session.run({{"x", TensorView::of(x, {elements})}}).value();
        for (int64_t i = 0; i < elements; ++i) ASSERT_EQ(y[0].values<float>()[i], -x[i]);
      }
      heard = tbb::this_task_arena::current_thread_index() != tbb::task_arena::not_initialized;
    });
  }).join();
  return heard;
}

TEST(Arena, LittleWorkNeedsNone) {
  EXPECT_FALSE(enters_an_arena(2)); // two microseconds of the evaluator
  if (runtime::default_threads() > 1) {
    EXPECT_TRUE(enters_an_arena(1 << 20));
  }
}

thread_local bool in_work = false;

using Work = std::function<void()>;

/// Somebody calls `around(loop)` in an arena of two threads, and waits for the end of the loop inside, while
/// others bring work to the arena. How much of it the thread that waits does meanwhile.
int taken_while_waiting(const std::function<void(const Work&)>& execute,
                        const std::function<void(const Work&)>& around) {
  std::atomic<bool> other_half{false};
  std::atomic<int> callers{0}, taken{0}, done{0};
  /// Until `enough` or, where that never comes, for a while.
  auto wait = [](std::chrono::milliseconds longest, const std::function<bool()>& enough) {
    const auto end = std::chrono::steady_clock::now() + longest;
    while (!enough() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  // The caller and the worker have a half of the loop each. The caller is ready soon, and waits.
  auto loop = [&] {
    const auto self = std::this_thread::get_id();
    tbb::parallel_for(
        0, 2,
        [&](int) {
          if (std::this_thread::get_id() == self)
            return wait(std::chrono::seconds(5), [&] { return other_half.load(); });
          other_half = true;
          wait(std::chrono::seconds(5), [&] { return callers == 6; });
          wait(std::chrono::milliseconds(100), [&] { return taken > 0; });
        },
        tbb::static_partitioner());
  };
  std::thread first([&] {
    execute([&] {
      in_work = true;
      around(loop);
      in_work = false;
    });
  });
  wait(std::chrono::seconds(5), [&] { return other_half.load(); });
  std::vector<std::thread> others;
  for (int t = 0; t < 6; ++t)
    others.emplace_back([&] {
      ++callers;
      execute([&] {
        taken += in_work;
        ++done;
      });
    });
  first.join();
  for (std::thread& t : others) t.join();
  EXPECT_EQ(done, 6);
  return taken;
}

TEST(Arena, ARunThatWaitsTakesNoOtherRun) {
  runtime::Arena arena(2);
  if (arena.threads() < 2) GTEST_SKIP() << "the system gives one thread";
  EXPECT_EQ(
      taken_while_waiting([&](const Work& work) { arena.execute(work); }, [](const Work& loop) { loop(); }),
      0);
}

TEST(Arena, ACallFromATaskOfTheUserTakesNoOtherTask) {
  tbb::task_arena of_user(2);
  const std::string model = to_bytes(parse_graph("g (float[n] x) => (float[n] y) { y = Neg (x) }"));
  CompileOptions options;
  options.compile = false;
  int loops = 0;
  EXPECT_EQ(taken_while_waiting([&](const Work& work) { of_user.execute(work); },
                                [&](const Work& loop) {
                                  options.progress = [&](const std::string&, int, int) {
                                    if (loops++ == 0) loop();
                                  };
                                  Session::compile(std::as_bytes(std::span(model)), options).value();
                                }),
            0);
  EXPECT_GE(loops, 1);
}

} // namespace
} // namespace tbx::test
