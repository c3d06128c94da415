// DenormalsAsZero: this thread's processor takes denormal numbers for 0 and gives none, as callers may set
// it.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tbx::test {

class DenormalsAsZero {
#if defined(__x86_64__)
public:
  DenormalsAsZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
  ~DenormalsAsZero() { _mm_setcsr(before_); }
  DenormalsAsZero(const DenormalsAsZero&) = delete;
  DenormalsAsZero& operator=(const DenormalsAsZero&) = delete;

private:
  unsigned before_;
#endif
};

} // namespace tbx::test
