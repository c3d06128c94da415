// Work behind the calls of the library: in order, stopped where nobody wants it any more, lost by a fork.
#include "base/background_task.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>
#include <vector>

namespace tbx::test {
namespace {

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

/// Says when it begins, and ends when it is told to stop.
BackgroundTask::Work endless(std::promise<void>& begun) {
  return [&begun](const std::function<bool()>& stopped) {
    begun.set_value();
    while (!stopped()) pause();
  };
}

TEST(BackgroundTask, AllAreDoneOneAfterTheOther) {
  std::vector<int> order; // by one thread at a time, which the tasks show
  std::vector<std::unique_ptr<BackgroundTask>> tasks;
  std::promise<void> all;
  for (int i = 0; i < 100; ++i)
    tasks.push_back(BackgroundTask::start([&, i](const std::function<bool()>&) {
      order.push_back(i);
      if (i == 99) all.set_value();
    }));
  all.get_future().wait();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(BackgroundTask, OneThatNobodyWantsIsStopped) {
  std::promise<void> begun;
  auto task = BackgroundTask::start(endless(begun));
  begun.get_future().wait();
  task.reset();
  // The thread takes others after it.
  std::promise<void> done;
  task = BackgroundTask::start([&](const std::function<bool()>&) { done.set_value(); });
  done.get_future().wait();
}

TEST(BackgroundTask, OneThatHasNotBegunIsNotDone) {
  std::promise<void> begun;
  auto first = BackgroundTask::start(endless(begun));
  begun.get_future().wait();
  bool done = false;
  auto second = BackgroundTask::start([&](const std::function<bool()>&) { done = true; });
  second.reset();
  first.reset();
  EXPECT_FALSE(done);
}

TEST(BackgroundTask, SignalsGoToTheProgramsThreads) {
  sigset_t blocked;
  sigemptyset(&blocked);
  std::promise<void> done;
  auto task = BackgroundTask::start([&](const std::function<bool()>&) {
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    done.set_value();
  });
  done.get_future().wait();
  EXPECT_TRUE(sigismember(&blocked, SIGINT));
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_FALSE(sigismember(&blocked, SIGINT));
}

/// The child has no thread that works: it knows, waits for nothing, and can start others.
TEST(BackgroundTask, AForkedProcessBeginsAnew) {
  std::promise<void> begun;
  auto task = BackgroundTask::start(endless(begun));
  begun.get_future().wait();
  EXPECT_FALSE(task->is_lost());
  const pid_t child = fork();
  if (child == 0) {
    bool good = task->is_lost();
    task.reset();
    std::atomic<bool> done{false};
    auto other = BackgroundTask::start([&](const std::function<bool()>&) { done = true; });
    while (!done) pause();
    other.reset();
    _exit(good ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_FALSE(task->is_lost());
}

} // namespace
} // namespace tbx::test
