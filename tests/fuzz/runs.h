// For targets that run a model many times for one input: the driver's count of runs.
#pragma once

#include <cstdint>

/// libFuzzer has none.
extern "C" __attribute__((weak)) uint64_t tbx_fuzz_runs;

namespace tbx::fuzz {

inline void count_run() {
  if (&tbx_fuzz_runs) ++tbx_fuzz_runs;
}

} // namespace tbx::fuzz
