// CallScope and WorkerThread: what a forked process must know of the threads that it has no longer.
#pragma once

namespace tbx {

/// One call of the library, by any thread. A process that is forked meanwhile has a copy of the memory but
/// not of the threads: half-made changes, locks that nobody will open, workers that do not exist. Every later
/// call in that process is refused instead of waiting for ever.
class CallScope {
public:
  /// Throws Error (backend) in a process that was forked while another thread was in a call, or while a
  /// worker was still awake from one. Waits while another thread forks.
  CallScope();
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
};

/// Notes that the calling thread is one of a library's workers, until it ends. Between calls such a thread
/// looks for work for a while and then sleeps, and holds locks of its library on the way: a fork waits until
/// all of them sleep, for five seconds at most.
void note_worker_thread();

} // namespace tbx
