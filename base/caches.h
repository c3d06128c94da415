// Sizes of this machine's caches: what stays close to a core is cut by them.
#pragma once

#include <cstdint>
#include <string_view>

namespace tbx {

struct Caches {
  int64_t l1_bytes = 32 << 10;   ///< of a core, for data
  int64_t l2_bytes = 1 << 20;    ///< of a core
  int64_t share_bytes = 4 << 20; ///< a core's share of the last one; no more, for others may use it, too
};

/// Those of this machine, read once; what the system does not say is as above. Library kernels choose by them
/// in which order they go through memory, never the order of a sum; the compiler, which knows them from its
/// Target, cuts sums by them, too.
Caches host_caches();

/// CPUs in a list like "0-3,8": 0 where it is none.
int64_t cpus_of_list(std::string_view list);

/// host_caches() gives these ones while it lives: for tests.
class PretendedCaches {
public:
  explicit PretendedCaches(const Caches& caches);
  ~PretendedCaches();
  PretendedCaches(const PretendedCaches&) = delete;
  PretendedCaches& operator=(const PretendedCaches&) = delete;
};

} // namespace tbx
