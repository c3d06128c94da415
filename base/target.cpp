#include "base/target.h"

#include "base/caches.h"
#include "base/multiply_rates.h"

namespace tbx {

Target host_target() {
  Target t;
  t.isa = t.library_isa = host_isa();
  t.wide_multipliers = has_wide_multipliers();
  const Caches caches = host_caches();
  t.l1_bytes = caches.l1_bytes;
  t.l2_bytes = caches.l2_bytes;
  return t;
}

} // namespace tbx
