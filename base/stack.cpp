#include "base/stack.h"

#include <pthread.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace tbx {
namespace {

// The deepest nesting that limits allow takes about a quarter of this; sanitizers make frames larger.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kNeeded = size_t{8} << 20;
#else
constexpr size_t kNeeded = size_t{2} << 20;
#endif
constexpr size_t kGiven = size_t{4} * kNeeded;

/// The lowest address of the first thread's stack, in a moment: the library reads the list of all mappings
/// for it, which takes longer than loading a small model. The name of the program lies at its top, and the
/// kernel leaves room for kGrows below that. 0: another thread's, or one that we do not know.
uintptr_t lowest_of_first_thread(uintptr_t here) {
  constexpr rlim_t kGrows = 64 << 20;
  const uintptr_t top = getauxval(AT_EXECFN);
  rlimit limit{};
  if (gettid() != getpid() || getrlimit(RLIMIT_STACK, &limit) != 0) return 0;
  const uintptr_t lowest = top - std::min(limit.rlim_cur, kGrows);
  return lowest < here && here < top ? lowest : 0; // a fork of another thread goes on with that one's
}

/// The lowest address of this thread's stack; 0 where the system does not tell.
uintptr_t lowest_address(uintptr_t here) {
  if (const uintptr_t lowest = lowest_of_first_thread(here)) return lowest;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* lowest = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &lowest, &size) == 0;
  pthread_attr_destroy(&attributes);
  return known ? reinterpret_cast<uintptr_t>(lowest) : 0;
}

struct Call {
  const std::function<void()>& work;
  std::exception_ptr thrown;
};

void* run(void* argument) {
  auto& call = *static_cast<Call*>(argument);
  try {
    call.work();
  } catch (...) {
    call.thrown = std::current_exception();
  }
  return nullptr;
}

} // namespace

void with_stack(const std::function<void()>& work) {
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  thread_local const uintptr_t lowest = lowest_address(here); // asking takes a while
  if (lowest == 0 || here < lowest || here - lowest >= kNeeded) return work();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kGiven);
  Call call{work, nullptr};
  pthread_t thread;
  const int failed = pthread_create(&thread, &attributes, run, &call);
  pthread_attr_destroy(&attributes);
  if (failed)
    throw Error(ErrorKind::backend,
                fmt::format("this thread has a small stack, and one with {} bytes cannot be started: {}",
                            kGiven, std::strerror(failed)),
                "call from a thread with a larger stack");
  pthread_join(thread, nullptr);
  if (call.thrown) std::rethrow_exception(call.thrown);
}

} // namespace tbx
