#include "base/caches.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <string>

namespace tbx {
namespace {

int64_t cpus_in(const std::string& file) {
  std::ifstream in("/sys/devices/system/cpu/cpu0/" + file);
  std::string list;
  std::getline(in, list);
  return cpus_of_list(list);
}

Caches read_caches() {
  Caches c;
  if (const long l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE); l1 > 0) c.l1_bytes = l1;
  if (const long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE); l2 > 0) c.l2_bytes = l2;
  const int64_t last = sysconf(_SC_LEVEL3_CACHE_SIZE), sharing = cpus_in("cache/index3/shared_cpu_list");
  if (last > 0 && sharing > 0) {
    // CPUs of one core have its share together.
    const int64_t of_core = std::max<int64_t>(1, cpus_in("topology/thread_siblings_list"));
    c.share_bytes = std::min(c.share_bytes, last / std::max<int64_t>(1, sharing / of_core));
  }
  return c;
}

std::atomic<const Caches*> pretended = nullptr;

} // namespace

int64_t cpus_of_list(std::string_view list) {
  int64_t count = 0;
  const char *at = list.data(), *end = at + list.size();
  while (at < end) {
    int64_t first = 0, last = 0;
    auto number = std::from_chars(at, end, first);
    if (number.ec != std::errc()) return 0;
    last = first;
    if (number.ptr < end && *number.ptr == '-') {
      number = std::from_chars(number.ptr + 1, end, last);
      if (number.ec != std::errc() || last < first) return 0;
    }
    count += last - first + 1;
    if (number.ptr < end && *number.ptr != ',') return 0;
    at = number.ptr + 1;
  }
  return count;
}

Caches host_caches() {
  static const Caches caches = read_caches();
  const Caches* other = pretended;
  return other ? *other : caches;
}

PretendedCaches::PretendedCaches(const Caches& caches) { pretended = new Caches(caches); }
PretendedCaches::~PretendedCaches() { delete pretended.exchange(nullptr); }

} // namespace tbx
