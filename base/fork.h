// CallScope: what a forked process must know of the calls that other threads were in.
#pragma once

namespace tbx {

/// One call of the library, by any thread. A process that is forked meanwhile has a copy of the memory but
/// not of the threads: half-made changes, locks that nobody will open, workers that do not exist. Every later
/// call in that process is refused instead of waiting for ever.
class CallScope {
public:
  /// Throws Error (backend) in a process that was forked while another thread was in a call.
  CallScope();
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;
};

} // namespace tbx
