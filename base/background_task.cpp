#include "base/background_task.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "base/fork.h"

namespace tbx {
namespace {

std::atomic<bool> all_stopped{false};

} // namespace

class BackgroundThread {
public:
  static BackgroundThread& only() {
    static auto* one = new BackgroundThread; // never destroyed: it may be at work while the process ends
    return *one;
  }

  std::unique_ptr<BackgroundTask> start(BackgroundTask::Work work) {
    std::lock_guard lock(mutex_);
    std::unique_ptr<BackgroundTask> task(new BackgroundTask(std::move(work), process_));
    if (!is_alive_ && !start_thread()) {
      task->done_ = true; // nobody waits for it
      return nullptr;
    }
    waiting_.push_back(task.get());
    return task;
  }

  void end(BackgroundTask& task) {
    std::unique_lock lock(mutex_);
    task.stop_ = true;
    std::erase(waiting_, &task);
    ended_.wait(lock, [&] { return running_ != &task; });
  }

  int process() {
    std::lock_guard lock(mutex_);
    return process_;
  }

private:
  BackgroundThread() {
    pthread_atfork([] { only().mutex_.lock(); }, [] { only().mutex_.unlock(); }, [] { only().forked(); });
    std::atexit([] { only().end_all(); });
  }

  /// The thread is not in this process. Its object is given up: there is nothing to join or to detach.
  void forked() {
    static_cast<void>(thread_.release());
    is_alive_ = false;
    running_ = nullptr;
    waiting_.clear();
    ++process_;
    mutex_.unlock();
  }

  /// Signals are for the threads of the program.
  bool start_thread() {
    if (thread_ && thread_->joinable()) thread_->join(); // it has nothing left to do
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::make_unique<std::thread>([this] { work_off(); });
      is_alive_ = true;
    } catch (const std::exception&) { // no thread, or no memory for it
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return is_alive_;
  }

  void work_off() {
    note_worker_thread();
    std::unique_lock lock(mutex_);
    while (!waiting_.empty()) {
      running_ = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      running_->work_([task = running_] { return task->stop_ || all_stopped; });
      lock.lock();
      running_->done_ = true;
      running_ = nullptr;
      ended_.notify_all();
    }
    is_alive_ = false;
  }

  /// Before the process ends, or the library is unloaded.
  void end_all() {
    std::unique_lock lock(mutex_);
    waiting_.clear();
    if (running_) running_->stop_ = true;
    lock.unlock();
    if (thread_ && thread_->joinable()) thread_->join();
  }

  std::mutex mutex_;
  std::condition_variable ended_; ///< a task
  std::deque<BackgroundTask*> waiting_;
  BackgroundTask* running_ = nullptr;
  std::unique_ptr<std::thread> thread_;
  bool is_alive_ = false; ///< the thread takes another task
  int process_ = 0;
};

std::unique_ptr<BackgroundTask> BackgroundTask::start(Work work) {
  return BackgroundThread::only().start(std::move(work));
}

BackgroundTask::~BackgroundTask() {
  if (!done_) BackgroundThread::only().end(*this);
}

void BackgroundTask::stop_all() noexcept { all_stopped = true; }

bool BackgroundTask::is_lost() const { return !done_ && process_ != BackgroundThread::only().process(); }

} // namespace tbx
