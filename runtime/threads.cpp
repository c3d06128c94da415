// How many threads the machine grants this process.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/session.h"

namespace tbx::runtime {
namespace {

int affinity_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

/// CPU quota of the control group in whole CPUs, rounded up; 0: none.
int cgroup_threads() {
  std::string quota;
  double period = 0;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> quota >> period && quota != "max" && period > 0)
    return static_cast<int>(std::ceil(std::strtod(quota.c_str(), nullptr) / period));
  double q = 0;
  std::ifstream v1_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
      v1_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (v1_quota >> q && v1_period >> period && q > 0 && period > 0)
    return static_cast<int>(std::ceil(q / period));
  return 0;
}

} // namespace

int default_threads() {
  int n = affinity_threads();
  if (int quota = cgroup_threads(); quota > 0) n = std::min(n, quota);
  if (const char* omp = std::getenv("OMP_NUM_THREADS"))
    if (int v = std::atoi(omp); v > 0) n = std::min(n, v);
  return std::max(1, n);
}

} // namespace tbx::runtime
